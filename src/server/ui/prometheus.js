// Prometheus' text format, as far as charts need it.

const kSample = /^([\w:]+)(?:\{(.*)\})? (\S+)$/;

function readLabels(text) {
  const labels = {};
  for (const [, name, value] of text.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value;
  return labels;
}

// One reading of all metrics.
export class Sample {
  // `seconds`: when it was read.
  constructor(text, seconds) {
    this.seconds = seconds;
    this.values = new Map();   // name -> sum over its labels
    this.buckets = new Map();  // histogram -> [[upper bound, count]], counts as they are written
    for (const line of text.split("\n")) {
      const match = kSample.exec(line);
      if (match === null) continue;
      const [, name, labels, value] = match;
      if (name.endsWith("_bucket")) {
        this.addBucket(name.slice(0, -"_bucket".length), readLabels(labels).le, Number(value));
      } else {
        this.values.set(name, (this.values.get(name) ?? 0) + Number(value));
      }
    }
  }

  addBucket(name, bound, count) {
    if (!this.buckets.has(name)) this.buckets.set(name, new Map());
    const buckets = this.buckets.get(name);
    const upper = bound === "+Inf" ? Infinity : Number(bound);
    buckets.set(upper, (buckets.get(upper) ?? 0) + count);
  }

  value(name) {
    return this.values.get(name) ?? NaN;
  }
}

// How much `name` grew from one sample to another; what was started again began at nothing.
export function growth(name, from, to) {
  const difference = to.value(name) - from.value(name);
  return difference < 0 ? to.value(name) : difference;
}

export function rate(name, from, to) {
  return growth(name, from, to) / (to.seconds - from.seconds);
}

// The value that a part `q` of what was observed between the samples is at most, by linear
// interpolation in its bucket; NaN when nothing was.
export function quantile(name, q, from, to) {
  const now = to.buckets.get(name);
  if (now === undefined) return NaN;
  const before = from.buckets.get(name) ?? new Map();
  const counts = [...now].sort(([a], [b]) => a - b)
    .map(([bound, count]) => [bound, Math.max(0, count - (before.get(bound) ?? 0))]);
  const total = counts.at(-1)[1];
  if (total === 0) return NaN;
  let lower = 0;
  let below = 0;
  for (const [bound, count] of counts) {
    if (count >= q * total) {
      if (bound === Infinity) return lower;
      return lower + (bound - lower) * (count === below ? 1 : (q * total - below) / (count - below));
    }
    lower = bound;
    below = count;
  }
  return lower;
}
