// Reads what page_bytes.py writes: numbers as the page uses them.
const KINDS = { uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, int16: Int16Array, float32: Float32Array };

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(stream).arrayBuffer();
  const size = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  const arrays = {};
  for (const [name, [kind, start, length]] of Object.entries(header.arrays)) {
    arrays[name] = new KINDS[kind](buffer.slice(4 + size + start, 4 + size + start + length));
  }
  return arrange(header, arrays);
}

function arrange(header, a) {
  const T = a.usage.length, W = header.vocabulary.length, N = a.rows.length;
  const theta = fromLogs(a.topics, a.topicFloor, a.topicStep, T);
  const overall = new Float32Array(W); // p(w), topics weighted by usage
  for (let t = 0; t < T; t++) for (let w = 0; w < W; w++) overall[w] += a.usage[t] * theta[t * W + w];
  const pointer = new Uint32Array(N + 1);
  for (let n = 0; n < N; n++) pointer[n + 1] = pointer[n] + a.entrySizes[n];
  const gaps = variableNumbers(a.entryGaps, pointer[N]), words = new Uint32Array(pointer[N]);
  for (let n = 0; n < N; n++) {
    for (let e = pointer[n], word = 0; e < pointer[n + 1]; e++) words[e] = word += gaps[e];
  }
  const shares = new Float32Array(N * T);
  for (let n = 0, i = 0; n < N; n++) {
    for (let left = a.shareSizes[n]; left > 0; left--, i++) shares[n * T + a.shareTopics[i]] = (a.shares[i] / 255) ** 2;
  }
  let loadings = null, side = 0;
  if (a.loadings) {
    side = Math.round(Math.sqrt(a.loadings.length / T));
    for (let t = 0; t < T; t++) {
      for (let i = t * side * side + 1; i < (t + 1) * side * side; i++) a.loadings[i] += a.loadings[i - 1];
    }
    loadings = fromLogs(a.loadings, a.loadingFloor, a.loadingStep, T);
  }
  return {
    ...header, documents: header.documents.map((name) => (/^\d+$/.test(name) ? `Document ${name}` : name)), T, W, N, theta, overall, shares, loadings, side, pointer, words,
    counts: variableNumbers(a.entryCounts, pointer[N]), numbers: a.topicNumbers, usage: a.usage, rows: a.rows,
    lengths: a.lengths, order: [...a.order], weights: a.weights || null,
    correlation: (s, t) => a.correlations[s * T + t] / 10000,
    x: Float32Array.from(a.x, (v) => v / 10000), y: Float32Array.from(a.y, (v) => v / 10000), // the square is [-1, 1]
  };
}

function fromLogs(bytes, floor, step, rows) {
  const out = new Float32Array(bytes.length), width = bytes.length / rows, table = new Float32Array(256);
  for (let t = 0; t < rows; t++) {
    for (let q = 0; q < 256; q++) table[q] = floor[t] * Math.exp(step[t] * q);
    for (let i = t * width; i < (t + 1) * width; i++) out[i] = table[bytes[i]];
  }
  return out;
}

function variableNumbers(bytes, count) {
  const out = new Uint32Array(count);
  for (let i = 0, at = 0; i < count; i++) {
    let value = 0, shift = 0, byte;
    do {
      byte = bytes[at++];
      value += (byte & 127) * 2 ** shift;
      shift += 7;
    } while (byte & 128);
    out[i] = value;
  }
  return out;
}
