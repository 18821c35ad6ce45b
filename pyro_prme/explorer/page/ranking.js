// Which words stand for a topic. The formulas are those of pyro_prme.answers.words_of_topics, with a weight.
const RANKINGS = { probability: "Probability", lift: "Lift", frex: "FREX" };
const ranks = new Map();

// The share of words that score at most as much, in (0, 1].
function upToRank(scores) {
  const order = Array.from(scores.keys()).sort((i, j) => scores[i] - scores[j]);
  const out = new Float32Array(scores.length);
  for (let i = order.length - 1, top = order.length; i >= 0; i--) {
    if (i < order.length - 1 && scores[order[i]] < scores[order[i + 1]]) top = i + 1;
    out[order[i]] = top / order.length;
  }
  return out;
}

function frexRanks(t) {
  if (!ranks.has(t)) {
    if (!data.sums) {
      data.sums = new Float32Array(data.W);
      for (let s = 0; s < data.T; s++) for (let w = 0; w < data.W; w++) data.sums[w] += data.theta[s * data.W + w];
    }
    const row = data.theta.subarray(t * data.W, (t + 1) * data.W);
    ranks.set(t, [upToRank(row), upToRank(row.map((value, w) => value / data.sums[w]))]);
  }
  return ranks.get(t);
}

function scores(t, by, weight) {
  const row = data.theta.subarray(t * data.W, (t + 1) * data.W);
  if (by === "lift") return row.map((value, w) => Math.log(value) - weight * Math.log(data.overall[w]));
  if (by === "frex") {
    const [frequency, exclusivity] = frexRanks(t);
    return row.map((_, w) => 1 / (weight / exclusivity[w] + (1 - weight) / frequency[w]));
  }
  return row;
}

const cached = new Map();

// The first words; words of equal score by probability.
function topWords(t, count, by = state.by, weight = state.weight) {
  const key = `${t} ${count} ${by} ${by === "probability" ? 0 : weight}`;
  if (!cached.has(key)) {
    if (cached.size > 2000) cached.clear();
    const score = scores(t, by, weight), start = t * data.W;
    const order = Array.from(score.keys()).sort((i, j) => score[j] - score[i] || data.theta[start + j] - data.theta[start + i]);
    cached.set(key, order.slice(0, count));
  }
  return cached.get(key);
}

// p(topic | word), topics weighted by usage.
function topicsOfWord(w) {
  return Float32Array.from({ length: data.T }, (_, t) => (data.usage[t] * data.theta[t * data.W + w]) / data.overall[w]);
}
