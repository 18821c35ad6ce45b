// A document without words yet, dragged through the paintboxes of a fit: its topics light up.
plays.paintboxes = (section, data) => {
  const S = 400, K = data.boxes.length, said = el("p", { class: "said" }), tiles = [];
  let place = [0.1, -0.1];
  const colour = (name) => {
    const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim().slice(1);
    return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
  };
  const at = (grid, [x, y]) => {
    const last = data.side - 1, u = within(((x + 1) / 2) * last, 0, last), v = within(((y + 1) / 2) * last, 0, last);
    const i = Math.min(Math.floor(u), last - 1), j = Math.min(Math.floor(v), last - 1), a = u - i, b = v - j, s = j * data.side + i;
    return (1 - b) * ((1 - a) * grid[s] + a * grid[s + 1]) + b * ((1 - a) * grid[s + data.side] + a * grid[s + data.side + 1]);
  };
  const drawing = canvasOf(S, S, "The plane of the documents"), knob = svg("circle", { class: "ring", r: 9, style: "fill: var(--second); stroke: var(--paper); stroke-width: 2" });
  const x = (v) => ((v + 1) / 2) * S, y = (v) => ((1 - v) / 2) * S;
  drawing.append(svg("rect", { width: S, height: S, class: "frame", rx: 6 }), svg("g", {}, data.places.filter(([a, b]) => Math.abs(a) < 1 && Math.abs(b) < 1).map(([a, b]) => svg("circle", { cx: x(a), cy: y(b), r: 1.7, fill: "var(--muted)", "fill-opacity": 0.6 }))),
    handle(drawing, "A document; arrow keys move it", knob, () => [x(place[0]), y(place[1]), S], 6, (px, py) => {
      place = [within((2 * px) / S - 1, -1, 1), within(1 - (2 * py) / S, -1, 1)];
      draw();
    }));

  function paint() {
    const paper = colour("--box"), ink = colour("--accent"), fine = 80;
    data.boxes.forEach((grid, k) => {
      const canvas = tiles[k].canvas, context = canvas.getContext("2d"), image = context.createImageData(fine, fine), most = Math.max(...grid);
      for (let r = 0; r < fine; r++) for (let c = 0; c < fine; c++) {
        const v = at(grid, [(2 * c) / (fine - 1) - 1, 1 - (2 * r) / (fine - 1)]) / most;
        image.data.set([...paper.map((from, i) => from + (ink[i] - from) * v), 255], 4 * (r * fine + c));
      }
      context.putImageData(image, 0, 0);
    });
  }

  function draw() {
    knob.setAttribute("cx", x(place[0]));
    knob.setAttribute("cy", y(place[1]));
    const total = at(data.total, place), shares = data.boxes.map((grid) => at(grid, place) / total);
    tiles.forEach(({ tile, share, dot }, k) => {
      tile.style.setProperty("--lit", Math.min(1, 2.5 * shares[k]).toFixed(3));
      tile.classList.toggle("lit", shares[k] > 0.15);
      share.textContent = percent(shares[k]);
      dot.style.left = `${50 * (place[0] + 1)}%`;
      dot.style.top = `${50 * (1 - place[1])}%`;
    });
    const order = [...shares.keys()].sort((i, j) => shares[j] - shares[i]).slice(0, 2);
    const near = data.places.reduce((best, to, n) => {
      const d = (to[0] - place[0]) ** 2 + (to[1] - place[1]) ** 2;
      return d < best[0] ? [d, n] : best;
    }, [Infinity, 0])[1];
    said.textContent = `Here a document expects ${order.map((k) => `${percent(shares[k])} of \u201c${data.names[k]}\u201d`).join(" and ")}, and ${percent(Math.max(0, 1 - shares.reduce((a, b) => a + b)))} of other topics. The nearest of the documents shown is ${data.documents[near]}.`;
  }
  const boxes = el("div", { class: "boxes" }, data.names.map((name, k) => {
    const canvas = el("canvas", { width: 80, height: 80, role: "img", "aria-label": `Paintbox of ${name}` }), share = el("span", {}), dot = el("i", { "aria-hidden": "true" });
    const tile = el("div", { class: "box" }, el("div", { style: { position: "relative" } }, canvas, dot), el("div", { class: "name" }, el("span", {}, name), share));
    tiles[k] = { canvas, share, dot, tile };
    return tile;
  }));
  section.append(el("h2", {}, "A document dragged through the paintboxes"),
    el("p", {}, `Each of the ${K} boxes is a topic, painted where the random function makes it strong. The orange marker is a document\u2019s place h: drag it, or move it with the arrow keys, and see which topics light up before a single word is seen. Boxes that light up together belong to topics that are correlated.`),
    el("div", { class: "side" }, el("div", {}, drawing, said), boxes));
  paint();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  draw();
};
