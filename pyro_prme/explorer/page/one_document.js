// One document: its words by topic, what the model expects of it, and its topics if it stood elsewhere in the plane.

function entriesOf(n) {
  const out = [];
  for (let e = data.pointer[n]; e < data.pointer[n + 1]; e++) out.push({ word: data.words[e], count: data.counts[e] });
  return out;
}

// The loading of a topic at a place of the square [-1, 1]^2, between the four nearest points of its paintbox.
function loadingAt(t, x, y) {
  const last = data.side - 1;
  const u = Math.min(Math.max(((x + 1) / 2) * last, 0), last), v = Math.min(Math.max(((y + 1) / 2) * last, 0), last);
  const i = Math.min(Math.floor(u), last - 1), j = Math.min(Math.floor(v), last - 1), a = u - i, b = v - j;
  const at = (row, column) => data.loadings[(t * data.side + row) * data.side + column];
  return (1 - b) * ((1 - a) * at(j, i) + a * at(j, i + 1)) + b * ((1 - a) * at(j + 1, i) + a * at(j + 1, i + 1));
}

// Shares of the topics at a place before any word is seen.
function priorShares(x, y) {
  const loadings = Float64Array.from({ length: data.T }, (_, t) => loadingAt(t, x, y));
  return normalised(loadings);
}

// Shares of the topics in a document: as the model has them, or, at a place, from its words and the paintboxes there.
function sharesOf(n, place) {
  if (!place) return normalised(Float64Array.from(data.shares.subarray(n * data.T, (n + 1) * data.T)));
  const strength = Float64Array.from({ length: data.T }, (_, t) => loadingAt(t, ...place));
  const concentration = data.weights ? Float64Array.from(data.weights) : strength;
  const rate = data.weights ? strength.map((m, t) => data.weights[t] / m) : strength.map(() => 1);
  return eStep(entriesOf(n), concentration, rate, sharesOf(n, null));
}

// The closed-form updates of the library (equations/updates.py), with E theta in place of exp E ln theta.
function eStep(entries, concentration, rate, start) {
  const { T, W, theta } = data;
  const tokens = entries.reduce((sum, entry) => sum + entry.count, 0);
  const total = concentration.reduce((sum, value) => sum + value, 0);
  let counts = start.map((share) => share * tokens);
  let epsilon = total, mean = start;
  for (let sweep = 0; sweep < 40; sweep++) {
    const shape = counts.map((count, t) => concentration[t] + count);
    epsilon = solveEpsilon(shape, rate, tokens, total);
    const slope = tokens / epsilon;
    const weight = shape.map((value, t) => Math.exp(digamma(value)) / (rate[t] + slope));
    const next = new Float64Array(T);
    for (const { word, count } of entries) {
      let sum = 0;
      for (let t = 0; t < T; t++) sum += weight[t] * theta[t * W + word];
      if (sum > 0) for (let t = 0; t < T; t++) next[t] += (count * weight[t] * theta[t * W + word]) / sum;
    }
    const moved = next.reduce((sum, value, t) => sum + Math.abs(value - counts[t]), 0);
    counts = next;
    mean = counts.map((count, t) => (concentration[t] + count) / (rate[t] + slope));
    if (moved < 1e-3 * tokens) break;
  }
  return normalised(mean);
}

// Newton's method from zero for the sum over k of a e epsilon / (e epsilon + M) = prior total.
function solveEpsilon(shape, rate, tokens, total) {
  if (!tokens) return shape.reduce((sum, a, t) => sum + a / rate[t], 0);
  let epsilon = 0;
  for (let step = 0; step < 30; step++) {
    let value = -total, slope = 0;
    for (let t = 0; t < shape.length; t++) {
      const below = rate[t] * epsilon + tokens;
      value += (shape[t] * rate[t] * epsilon) / below;
      slope += (shape[t] * rate[t] * tokens) / below ** 2;
    }
    epsilon -= value / slope;
    if (Math.abs(value) < 1e-9 * total) break;
  }
  return epsilon;
}

function digamma(x) {
  let value = 0;
  for (; x < 6; x += 1) value -= 1 / x;
  const s = 1 / (x * x);
  return value + Math.log(x) - 1 / (2 * x) - s * (1 / 12 - s * (1 / 120 - s / 252));
}

function normalised(values) {
  const sum = values.reduce((total, value) => total + value, 0) || 1;
  return values.map((value) => value / sum);
}

// p(topic | word) in a document, shares times the topics' probabilities of the word.
function responsibilities(word, shares) {
  return normalised(shares.map((share, t) => share * data.theta[t * data.W + word]));
}

// p(word | document) for all words.
function predicted(shares) {
  const out = new Float64Array(data.W);
  for (let t = 0; t < data.T; t++) {
    if (shares[t] < 1e-4) continue;
    for (let w = 0; w < data.W; w++) out[w] += shares[t] * data.theta[t * data.W + w];
  }
  return out;
}
