// The paper recomputes epsilon again and again; the longer the document, the slower that gets there.
plays.epsilon = (section, { p, f, taken }) => {
  let M = 60, beta = 5, start = 14;
  const S = 360, edge = 40, drawing = canvasOf(S + edge, S + edge, "The map from epsilon to the next epsilon, and its steps"), said = el("p", { class: "said" });
  const shapes = () => p.map((value, k) => beta * value + M * taken[k]), rates = f.map((value) => Math.exp(-value));
  const next = (e) => shapes().reduce((sum, a, k) => sum + a / (rates[k] + M / e), 0);

  function solved() {
    const a = shapes();
    let e = 0, steps = 0;
    for (; steps < 60; steps++) {
      let value = -beta, slope = 0;
      a.forEach((shape, k) => {
        const under = rates[k] * e + M;
        value += (shape * rates[k] * e) / under;
        slope += (shape * rates[k] * M) / under ** 2;
      });
      e -= value / slope;
      if (Math.abs(value) < 1e-6 * beta) break;
    }
    return [e, steps + 1];
  }

  function draw() {
    const [root, newton] = solved(), most = Math.max(1.35 * root, 1.1 * start, 2), at = (v) => (v / most) * S;
    const x = (v) => edge + at(v), y = (v) => S - at(v), curve = Array.from({ length: 90 }, (_, i) => [x((most * (i + 0.2)) / 90), y(next((most * (i + 0.2)) / 90))]).filter((point) => point[1] >= 0);
    const steps = [[x(start), y(0)]];
    let e = start, count = 0;
    while (Math.abs(e / root - 1) > 0.01 && count < 2000) {
      const to = next(e);
      if (count < 400) steps.push([x(e), y(to)], [x(to), y(to)]);
      e = to;
      count += 1;
    }
    const tick = [1, 2, 5, 10, 20, 50, 100].find((value) => most / value < 6);
    drawing.replaceChildren(svg("rect", { x: edge, y: 0, width: S, height: S, class: "frame" }),
      ...Array.from({ length: Math.floor(most / tick) + 1 }, (_, i) => [text(x(i * tick), S + 15, i * tick, { "text-anchor": "middle" }), i ? text(edge - 6, y(i * tick) + 4, i * tick, { "text-anchor": "end" }) : null]).flat().filter(Boolean),
      path([[x(0), y(0)], [x(most), y(most)]], "axis"), path(curve, "curve"), svg("path", { d: path(steps, "").getAttribute("d"), style: "fill: none; stroke: var(--second); stroke-width: 1.2" }),
      svg("circle", { cx: x(root), cy: y(root), r: 4.5, fill: "var(--ink)" }), text(edge + S / 2, S + 32, "\u03b5 now", { "text-anchor": "middle" }), text(edge + 8, 18, "\u03b5 next"));
    const slope = (next(root * 1.0005) - next(root * 0.9995)) / (root * 0.001);
    said.textContent = `The fixed point is \u03b5 = ${root.toFixed(2)}. Recomputing comes within 1% of it after ${plural(count, "step")}; each step leaves ${percent(slope)} of the distance (1 \u2212 \u03b2/M would be ${percent(Math.max(0, 1 - beta / M))}). Newton\u2019s method from zero is there after ${newton}.`;
  }
  section.append(el("h2", {}, "Epsilon, again and again"),
    el("p", {}, "The bound on the expected logarithm of a document\u2019s total loading has a free number, \u03b5. The paper sets it to the current mean of the total, and updates the loadings, in turn. Here is that map and where it goes: the longer the document, the closer the curve lies to the diagonal, and the more it crawls."),
    el("div", { class: "side" }, el("div", {},
      el("div", { class: "controls" }, slider("length", "Words in the document, M", [Math.log10(5), Math.log10(1300), 0.01], Math.log10(M), (v) => String(Math.round(10 ** v)), (v) => ((M = Math.round(10 ** v)), draw())),
        slider("epsilon-beta", "Prior total \u03b2", [1, 20, 0.5], beta, (v) => v.toFixed(1), (v) => ((beta = v), draw())),
        slider("start", "Start", [0.5, 40, 0.5], start, (v) => v.toFixed(1), (v) => ((start = v), draw()))), said), drawing));
  draw();
};
