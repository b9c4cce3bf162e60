// Asks the server every second, and shows what it said.

const POLL_MS = 1000;
const TIMEOUT_MS = 4000;

const $ = (id) => document.getElementById(id);
const main = $('main');
const recent = new Window();
const cacheChart = new TimeChart($('cache-chart'), 'Cache by kind', [
  {key: 'global', label: 'global'}, {key: 'local', label: 'local'}, {key: 'held', label: 'held back'}, {key: 'reserved', label: 'reserved'},
], asBytes, 1024);
const tokensChart = new TimeChart($('tokens-chart'), 'Tokens a second', [
  {key: 'decode', label: 'decode'}, {key: 'prefill', label: 'prefill'},
], asRate, 1000);
const table = new SessionTable($('session-table'));

let layers = null;     // of the model, when it is known
let started = null;    // the process's start: another one has other counters
let answered = null;   // the wall clock of the last answer
let timer = null;      // of the next poll
let asking = false;    // a poll is under way: it says itself when the next one is due
let paused = false;

const STATES = {
  connecting: ['Connecting', ''],
  starting: ['Starting', 'the model is being loaded'],
  ready: ['Ready', 'serving for '],
  draining: ['Draining', 'not ready, but everything is still served; up for '],
  refusing: ['Stopping', 'new work is refused; up for '],
  unreachable: ['Unreachable', ''],
};

function figure(name, written, value) {
  for (const node of document.querySelectorAll(`[data-figure="${name}"]`)) writeFigure(node, written, value);
}

function showState(state, uptime) {
  const [name, note] = STATES[state];
  $('state').dataset.state = state;
  write($('state-name'), name);
  write($('state-note'), note.endsWith(' ') ? note + asTime(uptime) : note);
  document.title = state === 'ready' ? 'attnd' : `${name} – attnd`;
}

// The figures that one answer of /metrics gives, and the rates since another.
function showTiles(sample) {
  const num = (name, labels) => sample.sum(name, labels);
  const taken = num('attnd_kv_cache_used_bytes') + num('attnd_kv_cache_reserved_bytes');
  const ratio = num('attnd_kv_cache_usage_ratio');
  figure('cache_ratio', asPercent(ratio), ratio);
  figure('cache_taken', asBytes(taken), taken);
  figure('cache_capacity', asBytes(num('attnd_kv_cache_capacity_bytes')), num('attnd_kv_cache_capacity_bytes'));
  $('meter').setAttribute('width', 100 * Math.min(1, ratio));
  $('tile-cache').dataset.level = ratio >= 0.97 ? 'bad' : ratio >= 0.85 ? 'warn' : '';
  for (const [name, metric] of [['sessions', 'attnd_sessions'], ['queue_depth', 'attnd_queue_depth'], ['inflight_rpcs', 'attnd_inflight_rpcs']]) {
    figure(name, asCount(num(metric)), num(metric));
  }
  figure('inflight_bytes', asBytes(num('attnd_inflight_bytes')), num('attnd_inflight_bytes'));
  for (const reason of ['expired', 'evicted']) {
    const ended = num('attnd_sessions_ended_total', {reason});
    figure(`sessions_${reason}`, asCount(ended), ended);
  }
  figure('rss', asBytes(num('process_resident_memory_bytes')), num('process_resident_memory_bytes'));
}

function showRates() {
  const rate = (name, seconds, labels) => recent.rate(seconds, name, labels);
  const shown = (name, value, written) => figure(name, written(value), value === null ? undefined : value);
  const tokens = rate('attnd_tokens_total', 10);
  shown('tokens_rate', tokens === null || !layers ? null : tokens / layers.kinds.length, asRate);
  shown('requests_rate', rate('attnd_rpc_requests_total', 10), asRate);
  shown('sessions_created_rate', rate('attnd_sessions_created_total', 10), asRate);
  shown('cpu', rate('process_cpu_seconds_total', 10), (value) => (value === null ? NOTHING : [value.toFixed(2), '']));
  const [p99] = recent.quantiles('attnd_rpc_duration_seconds', {}, [0.99]).recent;
  shown('p99', p99, asSeconds);
  for (const seconds of [10, 60]) {
    const base = recent.base(seconds);
    const over = base ? Math.round((recent.latest().at - base.at) / 1000) : 0;
    const words = over >= 59 ? 'last minute' : `last ${over} s`;
    for (const node of document.querySelectorAll(`.window-${seconds}`)) write(node, words);
  }
}

function fillRow(body, key, title, cells) {
  let row = [...body.rows].find((one) => one.dataset.key === key);
  if (!row) {
    row = element('tr', {'data-key': key}, element('th', {scope: 'row'}, title), ...cells.map(() => element('td')));
    body.append(row);
  }
  cells.forEach(({written, value, edge, level}, i) => {
    const cell = row.cells[i + 1];
    if (edge) cell.classList.add('edge');
    cell.dataset.level = level || '';
    writeFigure(cell, written, value === null ? undefined : value);
  });
}

function showLatency(sample) {
  const body = $('latency').tBodies[0];
  const failed = (one) => one.all('attnd_rpc_requests_total').filter((each) => each.labels.code !== 'OK');
  const sumOf = (list, method) => list.reduce((sum, each) => sum + (each.labels.method === method ? each.value : 0), 0);
  const methods = sample.all('attnd_rpc_duration_seconds_count').filter((one) => one.value > 0).map((one) => one.labels.method);
  const base = recent.base(60);
  for (const method of methods) {
    const times = recent.quantiles('attnd_rpc_duration_seconds', {method}, [0.5, 0.95, 0.99]);
    const bad = sumOf(failed(sample), method);
    const recently = base ? bad - sumOf(failed(base), method) : null;
    const cells = [{written: asRate(recent.rate(60, 'attnd_rpc_duration_seconds_count', {method})), value: recent.rate(60, 'attnd_rpc_duration_seconds_count', {method}), edge: true}];
    cells[0].written = [cells[0].written[0], ''];
    for (const value of times.recent) cells.push({written: asSeconds(value), value});
    cells.push({written: asCount(recently), value: recently, level: recently ? 'bad' : 'quiet'});
    cells.push({written: asCount(times.total), value: times.total, edge: true});
    for (const value of times.start) cells.push({written: asSeconds(value), value});
    cells.push({written: asCount(bad), value: bad, level: bad ? '' : 'quiet'});
    fillRow(body, method, method, cells);
  }
  $('latency').hidden = !methods.length;
  $('latency-none').hidden = methods.length > 0;
}

function showSteps() {
  for (const phase of ['prefill', 'decode']) {
    for (const kind of ['local', 'global']) {
      const cells = [];
      for (const name of ['attnd_step_queue_seconds', 'attnd_step_compute_seconds']) {
        recent.quantiles(name, {phase, kind}, [0.5, 0.99]).recent.forEach((value, i) => cells.push({written: asSeconds(value), value, edge: i === 0}));
      }
      fillRow($('steps').tBodies[0], `${phase} ${kind}`, `${phase}, ${kind}`, cells);
    }
  }
}

function showRefusals(sample) {
  const reasons = sample.all('attnd_rejected_total').map((one) => one.labels.reason).sort();
  let minute = recent.base(60) ? 0 : null;
  for (const reason of reasons) {
    const increase = recent.increase(60, 'attnd_rejected_total', {reason});
    const value = increase && increase.value;
    if (value) minute += value;
    const total = sample.sum('attnd_rejected_total', {reason});
    if (!total) continue;
    fillRow($('refused').tBodies[0], reason, reason, [
      {written: asCount(value), value, level: value ? 'warn' : 'quiet'}, {written: asCount(total), value: total}]);
  }
  const never = reasons.filter((reason) => !sample.sum('attnd_rejected_total', {reason}));
  $('refused').hidden = never.length === reasons.length;
  write($('refused-none'), never.length ? `None for ${never.join(', ')}.` : '');
  figure('refused_minute', asCount(minute), minute === null ? undefined : minute);
  figure('refused_total', asCount(sample.sum('attnd_rejected_total')), sample.sum('attnd_rejected_total'));
  $('tile-refused').dataset.level = minute ? 'warn' : '';
}

function chart(sample) {
  cacheChart.ceiling = sample.sum('attnd_kv_cache_capacity_bytes') || null;
  const used = (kind) => sample.sum('attnd_kv_cache_used_bytes', {kind});
  cacheChart.add({at: sample.at, global: used('global'), local: used('local'), held: used('held'), reserved: sample.sum('attnd_kv_cache_reserved_bytes')});
  const per = (phase) => (recent.rate(1.5, 'attnd_tokens_total', {phase}) || 0) / layers.kinds.length;
  if (layers && recent.base(1.5)) tokensChart.add({at: sample.at, decode: per('decode'), prefill: per('prefill')});
}

function facts(list, pairs) {
  const text = JSON.stringify(pairs);
  if (list.dataset.shown === text) return;
  list.dataset.shown = text;
  list.replaceChildren(...pairs.map(([name, value, given]) =>
    element('div', given ? {class: 'given'} : {}, element('dt', {}, name), element('dd', {}, value === '' ? 'none' : value))));
}

function showServer(status) {
  showState(status.state, status.uptime_ms);
  write($('where'), `${status.server_id}`);
  const model = status.model;
  facts($('flags'), status.flags.map((flag) => [`--${flag.name}`, flag.value, flag.given]));
  facts($('build'), [['version', status.version], ['compiler', status.compiler], ['server', status.server_id]].concat(
    model ? [['device', model.device], ['model', model.name], ['fingerprint', model.fingerprint], ['weights', model.weights], ['cache', `${model.cache_dtype}, pages of ${model.page_tokens} tokens`]] : []));
  if (!model) return;
  write($('model'), `${model.name} on ${model.device}`);
  if (!layers || layers.model.fingerprint !== model.fingerprint) {
    layers = new Layers(model);
    $('layers').replaceChildren(...layers.strip());
    $('layer-kinds').replaceChildren(...layers.legend());
  }
}

function showSessions(status, sample) {
  const {list, limit, named} = status.sessions;
  table.show(status.sessions, layers);
  const total = sample.sum('attnd_sessions').toLocaleString('en-US');
  const which = list.length < sample.sum('attnd_sessions') ? `The ${list.length} used last of ${total}.` : `All ${total}.`;
  write($('sessions-note'), `${which} ${named ? 'Solid in a bar is what the next token sees.' : 'The server has tokens and this page asks for none: sessions are not named.'}`);
  $('sessions-note').title = `At most ${limit} are listed.`;
  $('sessions-note').hidden = !list.length;
  $('session-table').hidden = !list.length;
  $('sessions-none').hidden = list.length > 0;
}

function forget() {
  recent.clear();
  cacheChart.clear();
  tokensChart.clear();
  table.clear();
  for (const id of ['latency', 'steps', 'refused']) $(id).tBodies[0].replaceChildren();
}

function accept(metrics, status) {
  const sample = new Sample(metrics, performance.now());
  const start = `${status.server_id} ${sample.sum('process_start_time_seconds')}`;
  if (started !== start) forget();
  started = start;
  recent.add(sample);
  answered = Date.now();
  showServer(status);
  showTiles(sample);
  showRates();
  showLatency(sample);
  showSteps();
  showRefusals(sample);
  chart(sample);
  if (status.sessions) showSessions(status, sample);
  $('lost').hidden = true;
  delete document.body.dataset.stale;
  main.dataset.polls = String(Number(main.dataset.polls) + 1);
}

function lose(error) {
  showState('unreachable', 0);
  const since = answered === null ? '' :
    ` since ${new Date(answered).toLocaleTimeString('en-GB')}; the figures below are of then`;
  write($('lost'), `The server does not answer${since}. It is asked again every second.`);
  $('lost').title = String(error);
  $('lost').hidden = false;
  document.body.dataset.stale = '';
}

async function ask(path) {
  const answer = await fetch(path, {cache: 'no-store', signal: AbortSignal.timeout(TIMEOUT_MS)});
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.text();
}

async function poll() {
  timer = null;
  asking = true;
  const began = performance.now();
  try {
    const [metrics, status] = await Promise.all([ask('metrics'), ask('status.json')]);
    accept(metrics, JSON.parse(status));
  } catch (error) {
    lose(error);
  }
  asking = false;
  schedule(Math.max(0, POLL_MS - (performance.now() - began)));
}

// Nobody asks while nobody looks, and there is one poll at a time.
function schedule(delay) {
  clearTimeout(timer);
  timer = null;
  if (!document.hidden && !paused && !asking) timer = setTimeout(poll, delay);
}

function showTheme(theme) {
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  write($('theme'), `Theme: ${theme}`);
}

function storedTheme(theme) {
  try {
    if (theme) localStorage.setItem('attnd-theme', theme);
    const stored = localStorage.getItem('attnd-theme');
    return ['dark', 'light'].includes(stored) ? stored : 'system';
  } catch {
    return theme || 'system';  // no storage here: until the page is left
  }
}

$('theme').addEventListener('click', () => {
  const themes = ['system', 'dark', 'light'];
  const next = themes[(themes.indexOf(document.documentElement.dataset.theme || 'system') + 1) % 3];
  storedTheme(next);
  showTheme(next);
});
$('pause').addEventListener('click', () => {
  paused = !paused;
  $('pause').setAttribute('aria-pressed', String(paused));
  write($('pause'), paused ? 'Resume' : 'Pause');
  schedule(0);
});
document.addEventListener('visibilitychange', () => schedule(0));
showTheme(storedTheme());
schedule(0);
