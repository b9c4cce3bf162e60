'use strict';
// What /metrics says: the text format, histograms, and how figures are written.

// One answer of /metrics.
class Sample {
  // `at` in milliseconds of a monotonic clock.
  constructor(text, at) {
    this.at = at;
    this.series = new Map();  // by name: [{labels, value}]
    for (const line of text.split('\n')) {
      const parts = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
      if (!parts) continue;
      const labels = {};
      for (const [, key, value] of (parts[2] || '').matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[key] = value;
      const value = parts[3] === '+Inf' ? Infinity : Number(parts[3]);
      if (!this.series.has(parts[1])) this.series.set(parts[1], []);
      this.series.get(parts[1]).push({labels, value});
    }
  }

  all(name) {
    return this.series.get(name) || [];
  }

  // Summed over the series whose labels are `labels`, or more than those.
  sum(name, labels = {}) {
    let sum = 0;
    for (const one of this.all(name)) {
      if (Object.entries(labels).every(([key, value]) => one.labels[key] === value)) sum += one.value;
    }
    return sum;
  }

  // {bounds, counts}: counts are of what is at most the bound, the last is of everything.
  histogram(name, labels) {
    const counts = new Map();
    for (const one of this.all(name + '_bucket')) {
      if (!Object.entries(labels).every(([key, value]) => one.labels[key] === value)) continue;
      const bound = one.labels.le === '+Inf' ? Infinity : Number(one.labels.le);
      counts.set(bound, (counts.get(bound) || 0) + one.value);
    }
    const bounds = [...counts.keys()].sort((a, b) => a - b);
    return {bounds, counts: bounds.map((bound) => counts.get(bound))};
  }
}

// What was counted between two moments.
function since(base, histogram) {
  return {bounds: histogram.bounds, counts: histogram.counts.map((count, i) => count - (base.counts[i] || 0))};
}

function counted(histogram) {
  return histogram.counts.length ? histogram.counts[histogram.counts.length - 1] : 0;
}

// As histogram_quantile() has it: linear within a bucket. null: nothing was counted; Infinity: more
// than the last finite bound.
function quantile(histogram, q) {
  const rank = q * counted(histogram);
  if (!(rank > 0)) return null;
  const i = histogram.counts.findIndex((count) => count >= rank);
  if (histogram.bounds[i] === Infinity) return Infinity;
  const lower = i > 0 ? histogram.bounds[i - 1] : 0;
  const below = i > 0 ? histogram.counts[i - 1] : 0;
  return lower + (histogram.bounds[i] - lower) * (rank - below) / (histogram.counts[i] - below);
}

// The samples of the last minute.
class Window {
  constructor() {
    this.samples = [];
  }

  add(sample) {
    this.samples.push(sample);
    while (this.samples[0].at < sample.at - 60500) this.samples.shift();
  }

  clear() {
    this.samples = [];
  }

  latest() {
    return this.samples[this.samples.length - 1];
  }

  // The sample so many seconds ago, or the oldest since then. null: there is none but the latest.
  base(seconds) {
    const base = this.samples.find((sample) => sample.at >= this.latest().at - seconds * 1000 - 500);
    return base === this.latest() ? null : base;
  }

  // The increase of a counter and the seconds that it took; null without a base.
  increase(seconds, name, labels) {
    const base = this.base(seconds);
    if (!base) return null;
    return {
      value: this.latest().sum(name, labels) - base.sum(name, labels),
      seconds: (this.latest().at - base.at) / 1000,
    };
  }

  rate(seconds, name, labels) {
    const increase = this.increase(seconds, name, labels);
    return increase && increase.value / increase.seconds;
  }

  quantiles(name, labels, points) {
    const latest = this.latest().histogram(name, labels);
    const base = this.base(60);
    const recent = base && since(base.histogram(name, labels), latest);
    return {
      total: counted(latest),
      start: points.map((q) => quantile(latest, q)),
      recent: points.map((q) => recent && quantile(recent, q)),
    };
  }
}

// [number, unit], three digits. A dash where there is nothing to say.
const NOTHING = ['–', ''];

function digits(value) {
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 999.5) return Math.round(value).toLocaleString('en-US');
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

function asCount(value) {
  return value === null ? NOTHING : [Math.round(value).toLocaleString('en-US'), ''];
}

function asRate(value) {
  return value === null ? NOTHING : [digits(value), '/s'];
}

function asBytes(value) {
  if (value === null) return NOTHING;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (value >= 1023.5 && unit + 1 < units.length) {
    value /= 1024;
    ++unit;
  }
  return [unit === 0 ? String(value) : digits(value), units[unit]];
}

function asSeconds(value) {
  if (value === null) return NOTHING;
  if (value === Infinity) return ['> 60', 's'];
  if (value < 0.9995e-3) return [digits(value * 1e6), 'µs'];
  return value < 0.9995 ? [digits(value * 1e3), 'ms'] : [digits(value), 's'];
}

function asPercent(value) {
  return value === null ? NOTHING : [(value * 100).toFixed(1), '%'];
}

// Of milliseconds, in at most two units: "4 min 05 s".
function asTime(ms) {
  if (ms === null) return 'never';
  const s = Math.floor(ms / 1000);
  const two = (n) => String(n).padStart(2, '0');
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${two(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${two(Math.floor(s / 60) % 60)} min`;
  return `${Math.floor(s / 86400)} d ${two(Math.floor(s / 3600) % 24)} h`;
}
