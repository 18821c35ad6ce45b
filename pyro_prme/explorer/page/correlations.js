// The correlations of all topics, ordered so that neighbours go together, and the strongest pairs.
let cell = 0, left = 0, most = 1, cursor = [0, 1]; // pixels of a cell and of the names; the strongest; where the keyboard stands

function drawCorrelations() {
  const panel = $("panel-correlations");
  if (panel.hidden) return;
  const pairs = [];
  for (let s = 0; s < data.T; s++) for (let t = s + 1; t < data.T; t++) pairs.push([s, t, data.correlation(s, t)]);
  pairs.sort((a, b) => b[2] - a[2]);
  most = Math.max(...pairs.map((p) => Math.abs(p[2])), 0.01);
  const what = { function: "random function\u2019s mean", posterior: "topics\u2019 shares", roots: "square roots of the topics\u2019 shares" }[data.correlationKind];
  const canvas = el("canvas", { id: "matrix", tabindex: 0, role: "application", "aria-roledescription": "matrix", "aria-label": "Correlation matrix. Arrow keys move, Enter lays the two topics over each other on the map; the tables below say the same." });
  const list = (title, some) => el("section", {}, el("h3", {}, title), el("ol", { class: "list" }, some.map(([s, t, r]) => el("li", {}, el("button", { type: "button", class: "row tall", onclick: () => set({ topic: s, other: t }) },
    el("span", { class: "value" }, signed(r)), el("span", { class: "word" }, label(s), el("br"), label(t)))))));
  const table = el("details", { class: "table" }, el("summary", {}, "As a table"));
  table.addEventListener("toggle", () => table.open && table.children.length < 2 && table.append(correlationTable()));
  panel.replaceChildren(
    el("p", { class: "small" }, `Correlations of the ${what} over ${plural(data.N, "document")}. Neighbours go together; blue is positive, orange with a dash negative, the darkest are \u00b1${most.toFixed(2)}. A pair that you choose is laid over each other on the map.`),
    el("div", { class: "matrix" }, canvas), el("p", { id: "pair-name", class: "small" }, ""),
    el("div", { class: "pair" }, list("Strongest together", pairs.slice(0, 6).filter((p) => p[2] > 0)), list("Strongest apart", pairs.slice(-6).reverse().filter((p) => p[2] < 0))),
    table,
  );
  startMatrix(canvas);
  drawMatrix();
}

function correlationTable() {
  const order = data.order;
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of correlations" }, el("table", {},
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Topic"), order.map((t) => el("th", { scope: "col" }, data.numbers[t])))),
    el("tbody", {}, order.map((s) => el("tr", {}, el("th", { scope: "row" }, `${data.numbers[s]} ${label(s)}`), order.map((t) => el("td", {}, data.correlation(s, t).toFixed(2))))))));
}

function drawMatrix() {
  const canvas = $("matrix");
  if (!canvas || $("panel-correlations").hidden) return;
  const width = canvas.parentElement.clientWidth;
  left = width / data.T >= 9 && width > 420 ? Math.min(190, 0.3 * width) : 0;
  cell = Math.min((width - left) / data.T, 26);
  const height = cell * data.T, context = sharp(canvas, left + height, height);
  canvas.style.width = `${left + height}px`;
  canvas.style.height = `${height}px`;
  const at = (t) => data.order.indexOf(t);
  data.order.forEach((s, i) => data.order.forEach((t, j) => {
    const r = data.correlation(s, t), strength = Math.min(1, Math.abs(r) / most) ** 0.8;
    context.fillStyle = css(s === t ? palette.line : between(palette.box, r > 0 ? palette.accent : palette.second, strength));
    context.fillRect(left + j * cell, i * cell, Math.max(cell - 0.6, 0.5), Math.max(cell - 0.6, 0.5));
    if (r > -0.3 * most || cell < 5) return;
    context.fillStyle = css(palette.dark || strength < 0.6 ? palette.ink : palette.paper, 0.75); // a minus, for those who see no colours
    context.fillRect(left + (j + 0.25) * cell, (i + 0.5) * cell - 0.8, 0.45 * cell, 1);
  }));
  context.strokeStyle = css(palette.ink);
  context.lineWidth = 1.5;
  const box = (i, j) => context.strokeRect(left + j * cell - 0.8, i * cell - 0.8, cell + 1, cell + 1);
  if (state.other !== null) {
    box(at(state.topic), at(state.other));
    box(at(state.other), at(state.topic));
  }
  if (document.activeElement === canvas) {
    context.setLineDash([2, 2]);
    box(...cursor);
    context.setLineDash([]);
  }
  if (left) {
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.font = `${Math.min(11.5, cell * 0.86)}px ${getComputedStyle(document.body).fontFamily}`;
    data.order.forEach((s, i) => {
      context.fillStyle = css(s === state.topic || s === state.other ? palette.ink : palette.muted);
      let text = label(s);
      while (text.length > 4 && context.measureText(text).width > left - 8) text = `${text.slice(0, -2)}\u2026`.replace("\u2026\u2026", "\u2026");
      context.fillText(text, left - 6, (i + 0.5) * cell);
    });
  }
}

function tellPair([i, j], aloud) {
  const s = data.order[i], t = data.order[j], text = `${label(s)} \u2014 ${label(t)}: ${signed(data.correlation(s, t))}`;
  $("pair-name").textContent = text;
  if (aloud) say(text);
}

function startMatrix(canvas) {
  const cellAt = (event) => {
    const box = canvas.getBoundingClientRect();
    const j = Math.floor((event.clientX - box.left - left) / cell), i = Math.floor((event.clientY - box.top) / cell);
    return i >= 0 && j >= 0 && i < data.T && j < data.T ? [i, j] : null;
  };
  const choose = ([i, j]) => i !== j && set({ topic: data.order[i], other: data.order[j] });
  canvas.addEventListener("pointermove", (event) => {
    const found = cellAt(event);
    if (found) tellPair(found, false);
  });
  canvas.addEventListener("click", (event) => {
    const found = cellAt(event);
    if (found) [cursor] = [found, choose(found)];
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "Enter") choose(cursor);
    if (!step) return;
    event.preventDefault();
    cursor = cursor.map((c, i) => Math.min(data.T - 1, Math.max(0, c + step[i])));
    tellPair(cursor, true);
    drawMatrix();
  });
  canvas.addEventListener("focus", drawMatrix);
  canvas.addEventListener("blur", drawMatrix);
  canvas.addEventListener("pointerleave", () => ($("pair-name").textContent = ""));
}

function startCorrelations() {
  view(["tab", "names"], drawCorrelations);
  view(["topic", "other"], drawMatrix);
}
