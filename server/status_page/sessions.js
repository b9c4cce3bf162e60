// The table of sessions, and the strip of layers above it.

class Layers {
  constructor(model) {
    this.kinds = [...model.layers];
    this.model = model;
  }

  // What a token of the layer sees: so many tokens, itself included.
  sees(layer) {
    return this.kinds[layer] === 'L' ? this.model.local.window : this.model.max_seq_len;
  }

  strip() {
    return this.kinds.map((kind, layer) => {
      const mask = drawn('svg', {class: 'mask', 'aria-hidden': 'true'});
      mask.append(drawn('use', {href: `#mask-${kind}`}));
      const sees = this.sees(layer).toLocaleString('en-US');
      const said = kind === 'L' ? `a window of ${sees} tokens` : 'all tokens before';
      return element('li', {class: kind, title: `Layer ${layer}: a token sees ${said}`},
        element('span', {class: 'index'}, String(layer)), mask, element('strong', {}, kind),
        element('span', {class: 'sees'}, kind === 'L' ? sees : 'all'));
    });
  }

  legend() {
    const {local, global, max_seq_len: longest} = this.model;
    const count = (kind) => this.kinds.filter((one) => one === kind).length;
    const bytes = (value) => asBytes(value).join(' ');
    const lines = [];
    if (count('L')) {
      lines.push(['L', `${count('L')} local: the last ${local.window.toLocaleString('en-US')} tokens; ` +
        `${local.heads} heads on ${local.kv_heads} of keys and values, ${local.head_width} wide; ${bytes(local.token_bytes)} a token`]);
    }
    if (count('G')) {
      lines.push(['G', `${count('G')} global: all of up to ${longest.toLocaleString('en-US')} tokens; ` +
        `${global.heads} heads on latents of ${global.latent_width} + ${global.rope_width}; ${bytes(global.token_bytes)} a token`]);
    }
    return lines.map(([kind, text]) => element('li', {}, element('span', {class: `swatch ${kind}`}), text));
  }

  // A bar a layer, as high as it is long; solid is what the next token sees.
  profile(lengths, longest) {
    const step = this.kinds.length > 40 ? 2 : this.kinds.length > 24 ? 3 : 5;
    const svg = drawn('svg', {class: 'profile', viewBox: `0 0 ${step * lengths.length} 20`, 'aria-hidden': 'true'});
    svg.setAttribute('width', step * lengths.length);
    svg.setAttribute('height', 20);
    lengths.forEach((length, layer) => {
      const seen = Math.min(length, this.sees(layer));
      for (const [value, part] of [[length, 'past'], [seen, 'seen']]) {
        const height = longest > 0 ? Math.max(value > 0 ? 1 : 0, 20 * value / longest) : 0;
        // What is seen is the newer end, on top.
        const y = 20 - (longest > 0 ? 20 * length / longest : 0);
        svg.append(drawn('rect', {class: `${part} ${this.kinds[layer]}`, x: step * layer, width: step - 1, y: Math.min(y, 19), height}));
      }
    });
    return svg;
  }
}

function range(numbers) {
  const least = Math.min(...numbers).toLocaleString('en-US');
  const most = Math.max(...numbers).toLocaleString('en-US');
  return least === most ? most : `${least} – ${most}`;
}

const COLUMNS = [
  {key: 'id', title: 'Session', text: true, of: (one) => one.id || ''},
  {key: 'length', title: 'Tokens', of: (one) => Math.max(0, ...one.lengths)},
  {key: 'profile', title: 'By layer', fixed: true},
  {key: 'cache', title: 'Cache', of: (one) => one.cache_bytes},
  {key: 'reserved', title: 'Reserved', of: (one) => one.reserved_bytes},
  {key: 'idle', title: 'Idle', of: (one) => (one.busy ? -1 : one.idle_ms)},
  {key: 'age', title: 'Age', of: (one) => one.age_ms},
  {key: 'expires', title: 'Expires in', of: (one) => (one.expires_ms === null ? Infinity : one.expires_ms)},
];

class SessionTable {
  constructor(table) {
    this.table = table;
    this.sort = {key: 'idle', falling: false};
    this.open = new Set();
    this.rows = new Map();  // by the session's key: {body, cells, button, detail}
    this.headers = new Map();
    for (const column of COLUMNS) {
      const header = element('th', {scope: 'col', class: column.key});
      if (column.fixed) {
        header.append(column.title);
      } else {
        const button = element('button', {type: 'button', class: 'sort'}, column.title, element('span', {'aria-hidden': 'true'}));
        button.addEventListener('click', () => this.sortBy(column));
        header.append(button);
        this.headers.set(column.key, header);
      }
      table.tHead.rows[0].append(header);
    }
  }

  sortBy(column) {
    const again = this.sort.key === column.key;
    this.sort = {key: column.key, falling: again ? !this.sort.falling : !column.text && column.key !== 'idle'};
    this.draw();
  }

  show(sessions, layers) {
    const seen = new Map();
    this.sessions = sessions.list.map((one) => {
      // Where ids are not told, the moment of creation tells sessions apart.
      const name = sessions.named ? one.id : `created ${one.created_us}`;
      seen.set(name, (seen.get(name) || 0) + 1);
      return {...one, key: `${name} ${seen.get(name)}`};
    });
    this.layers = layers;
    this.draw();
  }

  clear() {
    for (const row of this.rows.values()) row.body.remove();
    this.rows.clear();
    this.sessions = [];
  }

  draw() {
    for (const [key, header] of this.headers) {
      const here = key === this.sort.key;
      header.setAttribute('aria-sort', !here ? 'none' : this.sort.falling ? 'descending' : 'ascending');
    }
    const {of, text} = COLUMNS.find((column) => column.key === this.sort.key);
    const order = (a, b) => (text ? of(a).localeCompare(of(b), 'en', {numeric: true}) : of(a) - of(b)) * (this.sort.falling ? -1 : 1);
    const sorted = [...this.sessions].sort((a, b) => order(a, b) || a.key.localeCompare(b.key, 'en', {numeric: true}));
    const longest = Math.max(1, ...sorted.flatMap((one) => one.lengths));
    const kept = new Set(sorted.map((one) => one.key));
    for (const [key, row] of this.rows) {
      if (!kept.has(key)) {
        row.body.remove();
        this.rows.delete(key);
      }
    }
    let before = this.table.tHead;
    for (const one of sorted) {
      const row = this.row(one);
      this.fill(row, one, longest);
      // Only rows that are elsewhere move: a moved one would lose the focus.
      if (before.nextSibling !== row.body) before.after(row.body);
      before = row.body;
    }
  }

  row(one) {
    if (this.rows.has(one.key)) return this.rows.get(one.key);
    const button = element('button', {type: 'button', class: 'name', 'aria-expanded': 'false'});
    const cells = new Map();
    const main = element('tr');
    for (const column of COLUMNS) {
      const cell = element(column.key === 'id' ? 'th' : 'td', {class: column.key});
      if (column.key === 'id') {
        cell.setAttribute('scope', 'row');
        cell.append(button, element('span', {class: 'key'}));
      }
      cells.set(column.key, cell);
      main.append(cell);
    }
    const detail = element('td', {colspan: COLUMNS.length});
    const more = element('tr', {class: 'more', hidden: ''}, detail);
    const row = {body: element('tbody', {}, main, more), cells, button, detail, more};
    button.addEventListener('click', () => {
      if (!this.open.delete(one.key)) this.open.add(one.key);
      this.draw();
    });
    this.rows.set(one.key, row);
    return row;
  }

  fill(row, one, longest) {
    const open = this.open.has(one.key);
    const put = (key, text) => write(row.cells.get(key), text);
    write(row.button, one.id || 'not named here');
    row.button.setAttribute('aria-expanded', String(open));
    write(row.cells.get('id').lastChild, one.affinity_key || '');
    put('length', range(one.lengths));
    const shape = `${one.lengths.join()}/${longest}`;
    if (row.shape !== shape) {
      row.shape = shape;
      row.cells.get('profile').replaceChildren(this.layers.profile(one.lengths, longest));
    }
    put('cache', asBytes(one.cache_bytes).join('\u202f'));
    put('reserved', one.reserved_bytes ? asBytes(one.reserved_bytes).join('\u202f') : '–');
    put('idle', one.busy ? 'busy' : asTime(one.idle_ms));
    put('age', asTime(one.age_ms));
    put('expires', asTime(one.expires_ms));
    row.more.hidden = !open;
    if (open) this.detail(row.detail, one);
  }

  detail(cell, one) {
    const facts = [
      ['Affinity key', one.affinity_key || 'none'],
      ['Prefix', one.prefix_length ? `${one.prefix_length.toLocaleString('en-US')} tokens` : 'none'],
      ['Most tokens', one.max_tokens ? one.max_tokens.toLocaleString('en-US') : 'not reserved'],
      ['Created', new Date(one.created_us / 1000).toISOString().replace(/\.\d+Z/, ' UTC').replace('T', ' ')],
    ];
    const text = JSON.stringify([facts, one.lengths]);
    if (cell.dataset.shown === text) return;
    cell.dataset.shown = text;
    cell.replaceChildren(
      element('dl', {class: 'facts'}, ...facts.map(([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, value)))),
      element('ol', {class: 'lengths', 'aria-label': 'Tokens by layer'}, ...one.lengths.map((length, layer) => element('li', {class: this.layers.kinds[layer]},
        element('span', {class: 'index'}, `${layer} ${this.layers.kinds[layer]}`), ` ${length.toLocaleString('en-US')}`))));
  }
}
