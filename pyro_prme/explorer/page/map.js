// The map: paint of one topic or two, documents as points, and a marker for the place of the selected document.
const place = (n) => [data.x[n], data.y[n]];
const clamped = ([x, y]) => [Math.min(1, Math.max(-1, x)), Math.min(1, Math.max(-1, y))];
const tops = new Map();
let size = 0; // CSS pixels of a side

// The part of the square that is shown: its middle, and how many times larger it is than life.
const frame = { x: 0, y: 0, near: 1 };
const across = (x) => (((x - frame.x) * frame.near + 1) / 2) * size;
const down = (y) => ((1 - (y - frame.y) * frame.near) / 2) * size;
const toPlace = ([left, top]) => [frame.x + ((2 * left) / size - 1) / frame.near, frame.y + (1 - (2 * top) / size) / frame.near];

function show(middle, near) {
  frame.near = Math.min(16, Math.max(1, near));
  const most = 1 - 1 / frame.near;
  [frame.x, frame.y] = middle.map((v) => Math.min(most, Math.max(-most, v)));
  $("nearer").disabled = frame.near >= 16;
  $("farther").disabled = frame.near <= 1;
  drawPaint();
  drawRings();
}

// How surely there are documents near each point of the paintboxes, from 0 to 1: nothing is learned where there are none.
function known() {
  if (data.known) return data.known;
  const { side } = data, width = 2.4, near = new Float32Array(side * side), bin = (v) => Math.round(((v + 1) / 2) * (side - 1));
  for (let n = 0; n < data.N; n++) {
    const [x, y] = place(n);
    if (Math.abs(x) <= 1 && Math.abs(y) <= 1) near[bin(y) * side + bin(x)] += 1;
  }
  const kernel = Float32Array.from({ length: 13 }, (_, i) => Math.exp(-0.5 * ((i - 6) / width) ** 2) / (width * 2.5066));
  const blurred = (from, step, across) => from.map((_, at) => {
    let sum = 0;
    for (let i = -6; i <= 6; i++) if (across(at) + i >= 0 && across(at) + i < side) sum += kernel[i + 6] * from[at + i * step];
    return sum;
  });
  const smooth = blurred(blurred(near, 1, (at) => at % side), side, (at) => Math.floor(at / side));
  const enough = 0.05 * Math.max(1, data.N / 1500);
  return (data.known = smooth.map((value) => 1 - Math.exp(-value / enough)));
}

// Strength over the square, row by row from the bottom, as shares of what it is where all but a few documents are.
function relative(t) {
  const row = data.loadings.subarray(t * data.side ** 2, (t + 1) * data.side ** 2);
  if (!tops.has(t)) {
    const step = Math.max(1, Math.floor(data.N / 2000)), there = [];
    for (let n = 0; n < data.N; n += step) there.push(loadingAt(t, ...clamped(place(n))));
    there.sort((a, b) => a - b);
    tops.set(t, there[Math.floor(0.995 * (there.length - 1))]);
  }
  const sure = known();
  return row.map((value, at) => sure[at] * Math.min(1, value / tops.get(t)));
}

function paintInto(context, width, t, other, fine, { x, y, near } = { x: 0, y: 0, near: 1 }) {
  const image = context.createImageData(fine, fine);
  const one = relative(t), two = other === null ? null : relative(other), last = data.side - 1;
  const look = (grid, u, v) => {
    const i = Math.min(Math.floor(u), last - 1), j = Math.min(Math.floor(v), last - 1), a = u - i, b = v - j, at = j * data.side + i;
    return (1 - b) * ((1 - a) * grid[at] + a * grid[at + 1]) + b * ((1 - a) * grid[at + data.side] + a * grid[at + data.side + 1]);
  };
  for (let r = 0, at = 0; r < fine; r++) {
    const v = ((y + (1 - (2 * r) / (fine - 1)) / near + 1) / 2) * last;
    for (let c = 0; c < fine; c++, at += 4) {
      const u = ((x + ((2 * c) / (fine - 1) - 1) / near + 1) / 2) * last;
      image.data.set(paintColour(look(one, u, v), two ? look(two, u, v) : null), at);
      image.data[at + 3] = 255;
    }
  }
  const small = document.createElement("canvas");
  small.width = small.height = fine;
  small.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingQuality = "high";
  context.drawImage(small, 0, 0, width, width);
}

function drawPaint() {
  size = $("square").clientWidth;
  if (!size) return;
  const context = sharp($("paint"), size, size), { topic, other } = state;
  context.fillStyle = css(palette.box);
  context.fillRect(0, 0, size, size);
  if (hasPlaces()) paintInto(context, size, topic, other, 200, frame);
  const many = data.N / frame.near ** 2 > 4000, ring = many ? 0.5 : 0.8;
  const share = (n) => data.shares[n * data.T + topic] + (other === null ? 0 : data.shares[n * data.T + other]);
  context.fillStyle = css(palette.ink, many ? 0.18 : 0.32);
  const dot = many ? 1.4 : 2.2, lit = [], least = many ? 0.25 : 0.1;
  for (let n = 0; n < data.N; n++) {
    const [x, y] = place(n);
    if (share(n) > least) lit.push(n);
    else context.fillRect(across(x) - dot / 2, down(y) - dot / 2, dot, dot);
  }
  lit.sort((a, b) => share(a) - share(b));
  for (const n of lit) {
    const [x, y] = place(n);
    context.beginPath();
    context.arc(across(x), down(y), (many ? 2.2 : 4.5) * Math.sqrt(share(n)) + 0.6, 0, 7);
    const mixed = other === null ? 0 : data.shares[n * data.T + other] / share(n);
    context.fillStyle = css(hasPlaces() ? palette.paper : between(palette.accent, palette.second, mixed));
    context.fill();
    context.lineWidth = ring;
    context.strokeStyle = css(palette.ink);
    context.stroke();
  }
  const text = `Map of ${plural(data.N, "document")}${hasPlaces() ? `, painted where topic ${label(topic)} is strong` : ""}; ${plural(lit.length, "document")} with more than ${percent(least)} of it.`;
  $("paint").setAttribute("aria-label", text);
}

function drawRings() {
  if (!size) return;
  const context = sharp($("rings"), size, size);
  if (state.word !== null) {
    context.strokeStyle = css(palette.second);
    context.lineWidth = 1.4;
    for (const n of documentsOfWord(state.word)) {
      context.beginPath();
      context.arc(across(data.x[n]), down(data.y[n]), 4, 0, 7);
      context.stroke();
    }
  }
  const marker = $("marker");
  marker.hidden = state.document === null;
  if (state.document === null) return;
  const home = place(state.document), now = state.place || home;
  if (state.place) {
    context.strokeStyle = css(palette.ink);
    context.lineWidth = 1.2;
    context.setLineDash([3, 3]);
    context.beginPath();
    context.moveTo(across(home[0]), down(home[1]));
    context.lineTo(across(now[0]), down(now[1]));
    context.stroke();
  }
  const [x, y] = clamped(now);
  marker.hidden = Math.max(Math.abs(x - frame.x), Math.abs(y - frame.y)) * frame.near > 1.02;
  marker.style.left = `${across(x)}px`;
  marker.style.top = `${down(y)}px`;
  marker.setAttribute("aria-label", `${data.documents[state.document]} on the map${hasPlaces() ? ": drag it, or move it with the arrow keys; Escape puts it back" : ""}`);
}

function drawLegend() {
  const { topic, other } = state;
  const key = (colour, text) => el("span", { class: "key" }, el("i", { style: { background: css(colour) }, "aria-hidden": "true" }), text);
  const parts = [];
  parts.push(key(paintColour(0.85, other === null ? null : 0), label(topic)));
  if (other !== null) {
    parts.push(key(paintColour(0, 0.85), label(other)));
    if (hasPlaces()) parts.push(key(paintColour(0.85, 0.85), "both"));
    parts.push(el("span", {}, `correlation ${signed(data.correlation(topic, other))}`));
  }
  parts.push(el("span", {}, "\u25cb a document; its area is its share of the topic"));
  if (state.word !== null) parts.push(key(palette.second, `ring: holds \u201c${data.vocabulary[state.word]}\u201d`));
  if (state.document !== null) {
    const shares = sharesOf(state.document, state.place);
    const main = strongest(shares, 3).filter((t) => shares[t] > 0.05).map((t) => `${label(t)} ${percent(shares[t])}`);
    parts.push(el("span", { class: "here" }, key(palette.second, data.documents[state.document]), main.join("; ")));
  }
  $("legend").replaceChildren(...parts);
}

function nearest(x, y) {
  let best = null, least = 14 ** 2;
  for (let n = 0; n < data.N; n++) {
    const distance = (across(data.x[n]) - x) ** 2 + (down(data.y[n]) - y) ** 2;
    if (distance < least) [best, least] = [n, distance];
  }
  return best;
}

function startMap() {
  const square = $("square"), marker = $("marker"), hint = $("hint");
  const where = (event) => {
    const box = square.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  square.addEventListener("click", (event) => {
    if (event.target.tagName !== "CANVAS" || pulled) return;
    const n = nearest(...where(event));
    if (n !== null) set({ document: n, place: null, tab: "document" });
  });
  square.addEventListener("pointermove", (event) => {
    if (event.target.tagName !== "CANVAS") return;
    const [x, y] = where(event), n = nearest(x, y);
    hint.hidden = n === null;
    square.style.cursor = n === null ? (frame.near > 1 ? "move" : "") : "pointer";
    if (n === null) return;
    hint.textContent = data.documents[n];
    hint.style.left = `${Math.min(across(data.x[n]), size - hint.offsetWidth - 4)}px`;
    hint.style.top = `${Math.max(down(data.y[n]) - 30, 2)}px`;
  });
  square.addEventListener("pointerleave", () => (hint.hidden = true));
  startZoom(square, where);
  if (hasPlaces()) startMarker(marker, where);
  view(["topic", "other"], drawPaint);
  view(["topic", "other", "document", "place", "word"], drawRings);
  view(["topic", "other", "word", "document", "place", "names"], drawLegend);
  new ResizeObserver(() => {
    if (square.clientWidth === size) return;
    drawPaint();
    drawRings();
  }).observe(square);
}

let pulled = false; // whether the pointer has moved the map since it went down

function startZoom(square, where) {
  const middle = () => (state.document === null ? [frame.x, frame.y] : clamped(state.place || place(state.document)));
  $("nearer").addEventListener("click", () => show(middle(), 2 * frame.near));
  $("farther").addEventListener("click", () => show([frame.x, frame.y], frame.near / 2));
  $("farther").disabled = true;
  square.addEventListener("dblclick", (event) => event.target.tagName === "CANVAS" && show(toPlace(where(event)), 2 * frame.near));
  let grip = null;
  square.addEventListener("pointerdown", (event) => {
    pulled = false;
    if (event.target.tagName === "CANVAS" && frame.near > 1) grip = toPlace(where(event));
  });
  square.addEventListener("pointermove", (event) => {
    if (!grip || !event.buttons) return;
    const now = toPlace(where(event));
    if (!pulled && Math.hypot(now[0] - grip[0], now[1] - grip[1]) * frame.near * size < 8) return;
    pulled = true;
    show([frame.x + grip[0] - now[0], frame.y + grip[1] - now[1]], frame.near);
  });
  window.addEventListener("pointerup", () => (grip = null));
  view(["document"], () => {
    if (state.document === null || frame.near === 1) return;
    const [x, y] = clamped(place(state.document));
    if (Math.max(Math.abs(x - frame.x), Math.abs(y - frame.y)) * frame.near > 1) show([x, y], frame.near);
  });
}

function startMarker(marker, where) {
  let waiting = null;
  const move = (to) => {
    if (waiting === null) requestAnimationFrame(() => {
      const next = waiting;
      waiting = null;
      set({ place: clamped(next), tab: "document" }, { link: null });
    });
    waiting = to;
  };
  marker.addEventListener("pointerdown", (event) => {
    marker.setPointerCapture(event.pointerId);
    $("hint").hidden = true;
    event.preventDefault();
    marker.focus();
  });
  marker.addEventListener("pointermove", (event) => {
    if (!marker.hasPointerCapture(event.pointerId)) return;
    const [x, y] = where(event);
    move(toPlace([x, y]));
  });
  marker.addEventListener("pointerup", () => requestAnimationFrame(() => writeLink("replace")));
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  marker.addEventListener("keydown", (event) => {
    if (event.key === "Escape") set({ place: null });
    if (!steps[event.key]) return;
    event.preventDefault();
    const from = clamped(state.place || place(state.document)), by = event.shiftKey ? 0.15 : 0.04;
    set({ place: clamped(steps[event.key].map((step, i) => from[i] + by * step)), tab: "document" }, { link: "replace" });
    const shares = sharesOf(state.document, state.place), best = strongest(shares, 2);
    say(best.map((t) => `${label(t)} ${percent(shares[t])}`).join(", "));
  });
}

function strongest(values, count) {
  return Array.from(values.keys()).sort((i, j) => values[j] - values[i]).slice(0, count);
}
