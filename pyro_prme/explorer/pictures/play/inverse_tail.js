// A unit-rate Poisson process becomes the weights of a random measure through the inverse of the Levy tail.
plays.inverse_tail = (section, data) => {
  const narrow = section.clientWidth < 600, W = narrow ? 380 : 760, H = 320, left = 44, bottom = 34, low = 1e-6, most = 10, top = 60, said = el("p", { class: "said" });
  let at = data.discounts.indexOf(0.3);
  const across = (x) => left + ((Math.log10(Math.max(x, low)) - Math.log10(low)) / (Math.log10(most) - Math.log10(low))) * (W - left - 10);
  const down = (u) => H - bottom - (Math.min(u, top) / top) * (H - bottom - 12);
  const drawing = canvasOf(W, H + 96, "Points of a Poisson process, the tail, and the weights that they become");
  const moving = svg("g", {});
  drawing.append(svg("rect", { x: left, y: 12, width: W - left - 10, height: H - bottom - 12, class: "frame" }),
    text(left, H + 2, "1e\u22126"), text(across(1e-3), H + 2, "0.001", { "text-anchor": "middle" }), text(across(1), H + 2, "1", { "text-anchor": "middle" }), text(W - 10, H + 2, "weight", { "text-anchor": "end" }),
    [0, 20, 40, 60].map((u) => text(left - 8, down(u) + 4, u, { "text-anchor": "end" })), text(left, 6, "arrivals \u03d1\u2096 of a unit-rate Poisson process"), moving);

  function draw() {
    const weights = data.weights[at], tail = data.tails[at];
    const curve = data.x.map((x, i) => [x, tail[i]]).filter(([x, u]) => x >= low && u <= top).map(([x, u]) => [across(x), down(u)]);
    const total = weights.reduce((a, b) => a + b, 0), shown = 24, wide = (W - left - 10) / shown, high = 70;
    moving.replaceChildren(
      ...data.arrivals.flatMap((u, k) => [path([[left, down(u)], [across(weights[k]), down(u)], [across(weights[k]), H - bottom]], "thin"), svg("circle", { cx: left, cy: down(u), r: 2.4, fill: "var(--second)" }), weights[k] >= low ? svg("circle", { cx: across(weights[k]), cy: H - bottom, r: 2.4, fill: "var(--accent)" }) : null]).filter(Boolean),
      path(curve, "curve"), text(left, H + 22, `the ${shown} heaviest atoms`),
      ...weights.slice(0, shown).map((w, k) => {
        const tall = Math.max(high * Math.min(1, w / 1.6), 0.6);
        return svg("rect", { x: left + k * wide + 1, y: H + 96 - tall, width: wide - 3, height: tall, fill: "var(--accent)" });
      }));
    const half = weights.reduce(([sum, count], w) => (sum < total / 2 ? [sum + w, count + 1] : [sum, count]), [0, 0])[1];
    said.textContent = `Discount ${data.discounts[at].toFixed(2)}: these ${weights.length} atoms weigh ${total.toFixed(2)} together; ${half === 1 ? "one holds" : `${half} hold`} half of it, and ${weights.filter((w) => w > 0.01).length} are heavier than 0.01.`;
  }
  section.append(el("h2", {}, "Points through the inverse tail"),
    el("p", {}, "Points of a unit-rate Poisson process (orange, on the left) go across to the tail T of a generalised gamma process and down to its inverse, T\u207b\u00b9: these are the weights of a random measure, heaviest first. Raise the discount: the same points become fewer heavy atoms and a longer tail of light ones."),
    el("div", { class: "controls" }, slider("discount", "Discount", [0, data.discounts.length - 1, 1], at, (i) => data.discounts[i].toFixed(2), (i) => {
      at = i;
      draw();
    })), drawing, said);
  draw();
};
