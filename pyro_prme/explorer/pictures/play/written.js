// The prior writes documents: sticks, topics, loadings and words from the same draws, whatever the sliders say.
plays.written = (section, data) => {
  let alpha = 2, beta = 5, gamma0 = 0.1;
  const K = data.sticks.length, D = data.words.length, tones = [212, 352, 140, 265, 36, 178, 315, 75].map((hue) => `hsl(${hue} 46% 52%)`);
  const narrow = section.clientWidth < 600, wide = (narrow ? 380 : 560) / D;
  const boxes = { p: canvasOf(300, 82, "Sticks"), z: canvasOf(300, 120, "Topics of three documents"), theta: canvasOf(wide * D + 14, 190, "Words of the topics"), words: el("div", {}) };

  function logGamma(x) {
    let sum = 1.000000000190015, y = x;
    for (const c of [76.18009172947146, -86.50532032941677, 24.01409824083091, -1.231739572450155, 0.001208650973866179, -0.000005395239384953]) sum += c / ++y;
    return (x + 0.5) * Math.log(x + 5.5) - (x + 5.5) + Math.log((2.5066282746310005 * sum) / x);
  }

  // The share of a Gamma(a, 1) below x.
  function below(a, x) {
    const scale = Math.exp(a * Math.log(x) - x - logGamma(a));
    if (x < a + 1) {
      let term = 1 / a, sum = term;
      for (let n = 1; n < 200 && term > 1e-10 * sum; n++) sum += term *= x / (a + n);
      return scale * sum;
    }
    let b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
    for (let i = 1; i < 200; i++) {
      const an = -i * (i - a);
      b += 2;
      d = 1 / (an * d + b);
      c = b + an / c;
      const step = d * c;
      h *= step;
      if (Math.abs(step - 1) < 1e-9) break;
    }
    return 1 - scale * h;
  }

  // The logarithm of a Gamma(a, 1) at quantile u; of tiny shapes the draw itself would be zero.
  function logQuantile(a, u) {
    const small = (Math.log(Math.max(u, 1e-12)) + logGamma(a + 1)) / a;
    if (small < -9) return small;
    let low = -10, high = Math.log(a + 12 * Math.sqrt(a) + 30);
    for (let i = 0; i < 36; i++) {
      const middle = (low + high) / 2;
      if (below(a, Math.exp(middle)) < u) low = middle;
      else high = middle;
    }
    return (low + high) / 2;
  }

  const shares = (logs) => {
    const most = Math.max(...logs), values = logs.map((v) => Math.exp(v - most)), sum = values.reduce((a, b) => a + b);
    return values.map((v) => v / sum);
  };
  const pick = (weights, u) => {
    let k = 0;
    for (let rest = u - weights[0]; rest > 0 && k < weights.length - 1; rest -= weights[++k]);
    return k;
  };

  function draw() {
    const p = [];
    let left = 1;
    data.sticks.forEach((u, k) => {
      const v = k === K - 1 ? 1 : 1 - (1 - u) ** (1 / alpha);
      p.push(left * v);
      left *= 1 - v;
    });
    const theta = data.topics.map((row) => shares(row.map((u) => logQuantile(gamma0, u))));
    const z = data.loadings.map((row) => shares(row.map((u, k) => logQuantile(Math.max(beta * p[k], 1e-6), u))));
    boxes.p.replaceChildren(...p.map((v, k) => svg("rect", { x: k * 37, y: 66 - 60 * v, width: 30, height: Math.max(60 * v, 0.5), fill: tones[k] })), line(0, 66, 296, 66), ...p.map((v, k) => text(k * 37 + 12, 79, `${k + 1}`)));
    boxes.z.replaceChildren(...z.flatMap((row, n) => {
      let x = 0;
      return [text(0, 14 + n * 40, `document ${n + 1}`), ...row.map((v, k) => {
        const piece = svg("rect", { x, y: 18 + n * 40, width: Math.max(v * 300 - 0.6, 0.01), height: 14, fill: tones[k] });
        x += v * 300;
        return piece;
      }), ...row.map((v, k) => text(300 * (row.slice(0, k).reduce((a, b) => a + b, 0) + v / 2) - 3, 29 + n * 40, v > 0.06 ? `${k + 1}` : "", { class: "ontone" }))];
    }));
    boxes.theta.replaceChildren(...theta.flatMap((row, k) => row.map((v, d) => svg("rect", { x: 14 + d * wide, y: k * 15, width: wide - 1.5, height: 13, rx: 1, fill: tones[k], "fill-opacity": Math.min(1, 0.05 + 2.2 * v).toFixed(3) }))),
      ...theta.map((row, k) => text(0, k * 15 + 11, `${k + 1}`)),
      ...data.words.map((word, d) => text(0, 0, word, { transform: `translate(${14 + d * wide + wide / 2 - 3} 126) rotate(${narrow ? 75 : 60})` })));
    boxes.words.replaceChildren(...z.map((row, n) => el("p", { class: "text" }, el("span", { class: "small" }, `Document ${n + 1}: `), data.assignments[n].slice(0, 40).flatMap((u, m) => {
      const k = pick(row, u);
      return [el("span", { class: "token", style: { "--tone": tones[k] } }, data.words[pick(theta[k], data.tokens[n][m])], el("sub", {}, `${k + 1}`)), " "];
    }))));
  }
  const log = (low, high) => [Math.log10(low), Math.log10(high), 0.02];
  section.append(el("h2", {}, "A prior that writes documents"),
    el("p", {}, "The model before it has seen anything, with f = 0. \u03b1 says how many topics there are to speak of, \u03b2 how much each document follows the sticks, \u03b3\u2080 how few words a topic has. The dice stay the same while you move the sliders; numbers are topics."),
    el("div", { class: "controls" },
      slider("written-alpha", "Sticks \u03b1", log(0.2, 20), Math.log10(alpha), (v) => (10 ** v).toFixed(1), (v) => ((alpha = 10 ** v), draw())),
      slider("written-beta", "Loadings \u03b2", log(0.3, 100), Math.log10(beta), (v) => (10 ** v).toFixed(1), (v) => ((beta = 10 ** v), draw())),
      slider("written-gamma", "Topics \u03b3\u2080", log(0.01, 10), Math.log10(gamma0), (v) => (10 ** v).toFixed(2), (v) => ((gamma0 = 10 ** v), draw()))),
    el("div", { class: "side" },
      el("div", {}, el("p", { class: "small" }, "Sticks p: how much of everything each topic gets"), boxes.p, el("p", { class: "small" }, "Each document\u2019s shares of the topics"), boxes.z),
      el("div", {}, el("p", { class: "small" }, "The topics: a row each, darker words are more probable"), boxes.theta)),
    boxes.words);
  draw();
};
