// Areas over time, stacked; a cursor that the pointer and the arrow keys move.

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function drawn(name, attributes = {}) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// A number and its unit, and the exact value for whoever needs it.
function writeFigure(node, [number, unit], value) {
  if (node.childElementCount !== 2) node.replaceChildren(element('b'), element('i'));
  write(node.firstChild, number);
  write(node.lastChild, unit === '' || unit.startsWith('/') || unit === '%' ? unit : `\u202f${unit}`);
  node.dataset.value = value === undefined ? '' : String(value);
}

const SPAN_MS = 600000;      // kept
const SHORTEST_MS = 60000;   // shown
const GAP_MS = 5000;         // nothing was asked for in between: no line across
const EDGE = {left: 4, right: 4, top: 18, bottom: 20};

// The next of 1, 2 and 5 times a power of the base of its unit.
function roundUp(value, base) {
  let unit = 1;
  while (base === 1024 && value / unit >= 1024) unit *= 1024;
  const power = Math.pow(10, Math.floor(Math.log10(value / unit)));
  for (const step of [1, 2, 5, 10]) if (step * power * unit >= value) return step * power * unit;
  return value;
}

class TimeChart {
  // `series`: [{key, label}] from the bottom; a class of that key colours it. `format` as asBytes().
  constructor(root, name, series, format, base) {
    Object.assign(this, {root, name, series, format, base, points: [], cursor: null, ceiling: null});
    this.svg = drawn('svg', {class: 'chart', tabindex: 0, role: 'img'});
    this.legend = element('ul', {class: 'legend'});
    for (const one of series) {
      one.figure = element('span', {class: 'figure', 'data-figure': `${root.id}-${one.key}`});
      this.legend.append(element('li', {}, element('span', {class: `swatch ${one.key}`}), `${one.label} `, one.figure));
    }
    this.when = element('li', {class: 'when'});
    this.legend.append(this.when);
    root.append(this.svg, this.legend);
    this.svg.addEventListener('pointermove', (event) => this.point(event.offsetX));
    this.svg.addEventListener('pointerleave', () => this.move(null));
    this.svg.addEventListener('blur', () => this.move(null));
    this.svg.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(root);
  }

  add(point) {
    this.points.push(point);
    while (this.points[0].at < point.at - SPAN_MS) {
      this.points.shift();
      if (this.cursor) this.cursor -= 1;
    }
    this.draw();
  }

  clear() {
    this.points = [];
    this.cursor = null;
  }

  key(event) {
    const last = this.points.length - 1;
    const steps = {ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -last, End: last};
    if (event.key === 'Escape') this.move(null);
    if (!(event.key in steps) || last < 0) return;
    event.preventDefault();
    const from = this.cursor === null ? last : this.cursor;
    this.move(Math.max(0, Math.min(last, from + steps[event.key])));
  }

  point(x) {
    if (!this.points.length) return;
    const at = this.begin + (x - EDGE.left) / (this.width - EDGE.left - EDGE.right) * (this.end - this.begin);
    let best = 0;
    this.points.forEach((point, i) => {
      if (Math.abs(point.at - at) < Math.abs(this.points[best].at - at)) best = i;
    });
    this.move(best);
  }

  move(cursor) {
    this.cursor = cursor;
    this.draw();
  }

  x(at) {
    return EDGE.left + (at - this.begin) / (this.end - this.begin) * (this.width - EDGE.left - EDGE.right);
  }

  y(value) {
    return this.height - EDGE.bottom - value / this.top * (this.height - EDGE.top - EDGE.bottom);
  }

  draw() {
    this.width = this.root.clientWidth;
    this.height = 180;
    if (!this.points.length || this.width < 50) return;
    this.svg.setAttribute('viewBox', `0 0 ${this.width} ${this.height}`);
    this.end = this.points[this.points.length - 1].at;
    this.begin = Math.min(this.points[0].at, this.end - SHORTEST_MS);
    const totals = this.points.map((point) => this.series.reduce((sum, one) => sum + point[one.key], 0));
    const peak = Math.max(...totals);
    this.top = roundUp(Math.max(peak * 1.05, this.base === 1024 ? 1048576 : 1), this.base);
    if (this.ceiling && this.top > this.ceiling) this.top = this.ceiling;
    this.svg.replaceChildren(...this.grid(), ...this.areas());
    if (this.cursor !== null) {
      const x = this.x(this.points[this.cursor].at);
      this.svg.append(drawn('path', {class: 'cursor', d: `M${x} ${EDGE.top}V${this.height - EDGE.bottom}`}));
    }
    this.tell();
  }

  grid() {
    const made = [];
    for (const part of [0, 0.5, 1]) {
      const y = this.y(part * this.top);
      made.push(drawn('path', {class: part ? 'grid' : 'axis', d: `M${EDGE.left} ${y}H${this.width - EDGE.right}`}));
      if (!part) continue;
      const label = drawn('text', {class: 'tick', x: EDGE.left + 2, y: y - 3});
      const full = this.ceiling !== null && part * this.top === this.ceiling ? ', all there is' : '';
      label.textContent = this.format(part * this.top).join('\u202f') + full;
      made.push(label);
    }
    const minutes = (this.end - this.begin) / 60000;
    const step = minutes > 6 ? 2 : minutes > 3 ? 1 : 0.5;
    for (let m = step; m < minutes - step / 4; m += step) {
      const x = this.x(this.end - m * 60000);
      const label = drawn('text', {class: 'tick middle', x, y: this.height - 5});
      label.textContent = m < 1 || m % 1 ? `−${m * 60}\u202fs` : `−${m}\u202fmin`;
      made.push(drawn('path', {class: 'grid', d: `M${x} ${this.height - EDGE.bottom}v4`}), label);
    }
    const now = drawn('text', {class: 'tick end', x: this.width - EDGE.right, y: this.height - 5});
    now.textContent = 'now';
    made.push(now);
    return made;
  }

  areas() {
    const made = [];
    const base = this.points.map(() => 0);
    for (const one of this.series) {
      const upper = this.points.map((point, i) => base[i] + point[one.key]);
      let fill = '';
      let line = '';
      for (let i = 0; i < this.points.length;) {
        let j = i;
        while (j + 1 < this.points.length && this.points[j + 1].at - this.points[j].at < GAP_MS) ++j;
        const run = this.points.slice(i, j + 1);
        const edge = (values) => run.map((point, k) => `${this.x(point.at).toFixed(1)} ${this.y(values[i + k]).toFixed(1)}`);
        line += `M${edge(upper).join('L')}`;
        fill += `M${edge(upper).concat(edge(base).reverse()).join('L')}Z`;
        i = j + 1;
      }
      made.push(drawn('path', {class: `area ${one.key}`, d: fill}));
      // A band of no height draws no line over the one below it.
      if (upper.some((value, i) => value > base[i])) made.push(drawn('path', {class: `line ${one.key}`, d: line}));
      upper.forEach((value, i) => { base[i] = value; });
    }
    return made;
  }

  tell() {
    const at = this.cursor === null ? this.points.length - 1 : this.cursor;
    const point = this.points[at];
    for (const one of this.series) writeFigure(one.figure, this.format(point[one.key]), point[one.key]);
    const ago = Math.round((this.end - point.at) / 1000);
    const back = this.cursor !== null;
    write(this.when, back ? `${ago} s ago` : '');
    const said = this.series.map((one) => `${one.label} ${this.format(point[one.key]).join(' ')}`).join(', ');
    this.svg.setAttribute('aria-label', `${this.name}${back ? `, ${ago} seconds ago` : ''}: ${said}. Arrow keys go back in time.`);
  }
}
