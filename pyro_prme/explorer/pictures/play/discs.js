// Features as discs in the unit square: what overlaps comes together.
plays.discs = (section, { points }) => {
  const S = 380, discs = [{ x: 140, y: 150, r: 100 }, { x: 240, y: 190, r: 92 }, { x: 150, y: 300, r: 60 }];
  const drawing = canvasOf(S, S, "The paintbox: three discs and the objects"), names = ["blue", "orange", "green"];
  const table = el("div", { class: "scroll" }), rows = el("p", { class: "small" });
  const dots = points.map(([x, y]) => svg("circle", { cx: x * S, cy: (1 - y) * S, r: 3 }));
  const inside = (x, y) => discs.map((d) => (x - d.x) ** 2 + (y - d.y) ** 2 <= d.r ** 2);
  const shapes = discs.map((d, k) => svg("circle", { class: `ring c${k}`, style: "fill: var(--c); fill-opacity: 0.2; stroke: var(--c); stroke-width: 1.5" }));
  const titles = discs.map((_, k) => text(0, 0, names[k], { class: "strong", "text-anchor": "middle", style: "pointer-events: none" }));
  drawing.append(svg("rect", { width: S, height: S, class: "frame", rx: 6 }), svg("g", { style: "pointer-events: none" }, dots));
  discs.forEach((d, k) => drawing.append(handle(drawing, `The ${names[k]} disc`, shapes[k], () => [d.x, d.y, S], 6, (x, y) => {
    [d.x, d.y] = [within(x, 0, S), within(y, 0, S)];
    draw();
  })));
  drawing.append(...titles);
  const radii = el("div", { class: "controls" }, discs.map((d, k) => slider(`radius${k}`, `Size of ${names[k]}`, [12, 165, 1], d.r, (r) => (r / S).toFixed(2), (r) => {
    d.r = r;
    draw();
  })));

  function volumes() {
    const fine = 150, one = [0, 0, 0], two = [[0, 0, 0], [0, 0, 0], [0, 0, 0]];
    for (let i = 0; i < fine; i++) for (let j = 0; j < fine; j++) {
      const z = inside(((i + 0.5) / fine) * S, ((j + 0.5) / fine) * S);
      for (let k = 0; k < 3; k++) if (z[k]) for (let l = k; l < 3; l++) if (z[l]) two[k][l] += 1 / fine ** 2;
    }
    for (let k = 0; k < 3; k++) one[k] = two[k][k];
    return [one, two];
  }

  function draw() {
    discs.forEach((d, k) => Object.entries({ x: d.x, y: d.y - d.r + 16 }).forEach(([key, value]) => titles[k].setAttribute(key, value)));
    discs.forEach((d, k) => Object.entries({ cx: d.x, cy: d.y, r: d.r }).forEach(([key, value]) => shapes[k].setAttribute(key, value)));
    const counts = [0, 0, 0, 0];
    points.forEach(([x, y], n) => {
      const z = inside(x * S, (1 - y) * S), has = z.filter(Boolean).length;
      counts[has] += 1;
      dots[n].setAttribute("style", has === 0 ? "fill: var(--muted); fill-opacity: 0.5" : has === 1 ? `fill: var(--${["accent", "second", "third"][z.indexOf(true)]})` : "fill: var(--ink)");
      dots[n].setAttribute("r", has > 1 ? 4.2 : 3);
    });
    const [one, two] = volumes();
    const pairs = [[0, 1], [0, 2], [1, 2]].map(([k, l]) => {
      const product = one[k] * one[l], spread = Math.sqrt(one[k] * (1 - one[k]) * one[l] * (1 - one[l]));
      const r = spread > 0 ? (two[k][l] - product) / spread : 0;
      return el("tr", {}, el("th", { scope: "row" }, `${names[k]} and ${names[l]}`), el("td", {}, two[k][l].toFixed(3)), el("td", {}, product.toFixed(3)), el("td", {}, `${r < 0 ? "\u2212" : "+"}${Math.abs(r).toFixed(2)}`));
    });
    table.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ["Features", "both: area of the overlap", "if independent: product", "correlation"].map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, pairs)));
    rows.textContent = `Of ${points.length} objects, ${counts[0]} have no feature, ${counts[1]} have one, ${counts[2]} two and ${counts[3]} all three.`;
  }
  section.append(el("h2", {}, "Discs of a paintbox"),
    el("p", {}, "Each disc is a feature, each point an object that falls uniformly into the square. An object has the features whose discs it hits. Drag the discs: their areas are the probabilities of the features, and their overlaps decide which come together."),
    el("div", { class: "side" }, drawing, el("div", {}, radii, table, rows)));
  draw();
};
