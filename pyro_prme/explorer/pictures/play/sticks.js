// Sticks, the restaurant and the buffet beside each other, from the same concentration.
plays.sticks = (section, data) => {
  let alpha = 2, n = 18;
  const C = 18, W = 300, cell = W / C, rowHigh = 8.5, said = el("p", { class: "said" }), head = 86;
  const panels = ["Sticks", "Restaurant", "Buffet"].map((name) => canvasOf(W, head + 120, name));

  function stickWeights() {
    const p = [];
    let left = 1;
    for (const u of data.sticks) {
      const v = 1 - (1 - u) ** (1 / alpha);
      p.push(left * v);
      left *= 1 - v;
    }
    return p;
  }

  function seats() {
    const tables = [];
    return data.seats.slice(0, n).map((u, i) => {
      let rest = u * (i + alpha), k = 0;
      while (k < tables.length && rest >= tables[k]) rest -= tables[k++];
      if (k === tables.length) tables.push(0);
      tables[k] += 1;
      return [k];
    });
  }

  function dishes() {
    const taken = [];
    return Array.from({ length: n }, (_, i) => {
      const mine = taken.flatMap((count, k) => (data.dishes[i][k] < count / (i + 1) ? [k] : []));
      let fresh = 0, chance = Math.exp(-alpha / (i + 1)), sum = chance;
      while (data.newDishes[i] > sum && fresh < 30) {
        fresh += 1;
        chance *= alpha / (i + 1) / fresh;
        sum += chance;
      }
      for (let j = 0; j < fresh && taken.length < 60; j++) {
        mine.push(taken.length);
        taken.push(0);
      }
      for (const k of mine) taken[k] += 1;
      return mine;
    });
  }

  const bars = (drawing, heights) => heights.slice(0, C).map((v, k) => svg("rect", { x: k * cell + 1, y: head - 12 - 62 * Math.min(1, v), width: cell - 2, height: Math.max(62 * Math.min(1, v), 0.5), fill: "var(--accent)" }));
  const share = (rows) => Array.from({ length: 60 }, (_, k) => rows.filter((row) => row.includes(k)).length / n);
  const grid = (rows) => rows.flatMap((row, i) => row.filter((k) => k < C).map((k) => svg("rect", { x: k * cell + 2, y: head + i * rowHigh + 1, width: cell - 4, height: rowHigh - 2, rx: 1.5, fill: "var(--second)" })));
  const base = (words) => [line(0, head - 12, W, head - 12), ...words.map((word, i) => text(0, head + 12 + 15 * i, word))];

  function draw() {
    panels.forEach((panel) => panel.setAttribute("viewBox", `0 0 ${W} ${head + Math.max(n * rowHigh, 56) + 4}`));
    const p = stickWeights(), tables = seats(), plates = dishes();
    panels[0].replaceChildren(...bars(panels[0], p), ...base([]),
      svg("g", { transform: `translate(0 ${head + 6})` }, p.slice(0, C).reduce(({ at, out }, v, k) => {
        out.push(svg("rect", { x: at * W, width: Math.max(v * W - 0.8, 0.3), height: 26, fill: "var(--second)", "fill-opacity": 0.95 - 0.045 * k }));
        return { at: at + v, out };
      }, { at: 0, out: [] }).out), text(0, head + 50, "the same stick, broken into its pieces"));
    panels[1].replaceChildren(...bars(panels[1], share(tables)), ...base([]), ...grid(tables));
    panels[2].replaceChildren(...bars(panels[2], share(plates)), ...base([]), ...grid(plates));
    const numTables = new Set(tables.flat()).size, numDishes = new Set(plates.flat()).size;
    const expectTables = Array.from({ length: n }, (_, i) => alpha / (alpha + i)).reduce((a, b) => a + b), expectDishes = Array.from({ length: n }, (_, i) => alpha / (i + 1)).reduce((a, b) => a + b);
    said.textContent = `${plural(n, "customer")}: ${plural(numTables, "table")} (${expectTables.toFixed(1)} expected), ${numDishes} dishes (${expectDishes.toFixed(1)} expected). The longest stick is ${percent(Math.max(...p))} of the whole.`;
  }
  const column = (title, words, drawing) => el("div", {}, el("p", {}, el("strong", {}, title)), el("p", { class: "small" }, words), drawing);
  section.append(el("h2", {}, "Sticks, restaurant and buffet"),
    el("p", {}, "Three ways to look at infinitely many things of which few are used. Bars are shares; below them, each row is a customer."),
    el("div", { class: "controls" }, slider("alpha", "Concentration \u03b1", [0.2, 8, 0.1], alpha, (v) => v.toFixed(1), (v) => {
      alpha = v;
      draw();
    }), slider("customers", "Customers", [1, 30, 1], n, String, (v) => {
      n = v;
      draw();
    })),
    el("div", { class: "side three" }, column("Sticks: the weights themselves", "Each piece is a Beta(1, \u03b1) share of what is left.", panels[0]),
      column("Restaurant: one table each", "What you see when the weights are integrated out: a table is chosen in proportion to its guests, a new one in proportion to \u03b1.", panels[1]),
      column("Buffet: several dishes each", "A dish is taken with the share of those before who took it; customer i adds Poisson(\u03b1/i) new ones.", panels[2])), said);
  draw();
};
