// One topic: its name, its words, the topics that go with it, and its documents.
function drawTopic() {
  const t = state.topic, panel = $("panel-topic");
  if (panel.hidden) return;
  const input = el("input", { type: "text", id: "topic-name", value: names.get(t) || "", placeholder: label(t), "aria-label": "Name of this topic", maxlength: 60,
    onchange: (event) => {
      rename(t, event.target.value);
      redraw(["names"]);
      say(`The topic is called ${label(t)}.`);
    } });
  panel.replaceChildren(
    el("div", { class: "title" }, input,
      el("p", { class: "small" }, `Topic ${data.numbers[t]}. ${percent(data.usage[t])} of all tokens. Write a name over the words if you like.`)),
    wordsOfTopic(t),
    el("div", { class: "pair" }, companions(t, 1), companions(t, -1)),
    documentsOfTopic(t),
  );
}

function wordsOfTopic(t) {
  const choice = el("div", { class: "choice", role: "radiogroup", "aria-label": "Words ranked by" }, Object.entries(RANKINGS).map(([by, text]) => {
    const radio = el("input", { type: "radio", name: "by", value: by, id: `by-${by}`, onchange: () => set({ by }, { link: "replace" }) });
    radio.checked = state.by === by;
    return [radio, el("label", { for: `by-${by}` }, text)];
  }));
  const slider = el("input", { type: "range", id: "weight", min: 0, max: 1, step: 0.05, value: state.weight,
    oninput: (event) => set({ weight: Number(event.target.value) }, { link: "replace" }) });
  const ends = state.by === "probability" ? null : el("label", { class: "slider small", for: "weight" }, "frequent", slider, "exclusive");
  return el("section", {}, el("div", { class: "line" }, el("h3", {}, "Words"), choice), ends, el("div", { id: "words" }));
}

function drawWords() {
  const list = $("words");
  if (!list) return;
  const t = state.topic, order = topWords(t, 30), start = t * data.W;
  const most = Math.max(...order.map((w) => Math.max(data.theta[start + w], data.overall[w])));
  list.replaceChildren(el("ol", { class: "words" }, order.map((w) => {
    const inside = data.theta[start + w];
    return el("li", {}, el("button", { type: "button", class: "row", "aria-pressed": String(state.word === w), title: `${(100 * inside).toFixed(2)}% of this topic, ${(100 * data.overall[w]).toFixed(2)}% of all topics`,
      onclick: () => set({ word: state.word === w ? null : w }) },
    el("span", { class: "word" }, data.vocabulary[w]),
    el("span", { class: "double", "aria-hidden": "true" }, bar(inside / most), bar(data.overall[w] / most, "grey"))));
  })), el("p", { class: "small" }, el("span", { class: "key" }, el("i", { class: "accent", "aria-hidden": "true" }), "in this topic"), el("span", { class: "key" }, el("i", { class: "grey", "aria-hidden": "true" }), "in all topics")));
}

function companions(t, sign) {
  const others = Array.from({ length: data.T }, (_, s) => s).filter((s) => s !== t && sign * data.correlation(t, s) > 0);
  others.sort((a, b) => sign * (data.correlation(t, b) - data.correlation(t, a)));
  const items = others.slice(0, 6).map((s) => el("li", {}, el("button", { type: "button", class: "row", "aria-pressed": String(state.other === s), onclick: () => set({ other: state.other === s ? null : s }) },
    el("span", { class: "value" }, signed(data.correlation(t, s))), el("span", { class: "word" }, label(s)))));
  const title = sign > 0 ? "Found together with" : "Found apart from";
  return el("section", {}, el("h3", {}, title), items.length ? el("ol", { class: "list" }, items) : el("p", { class: "small" }, "No topic."));
}

function documentsOfTopic(t) {
  const share = (n) => data.shares[n * data.T + t];
  const order = Array.from({ length: data.N }, (_, n) => n).sort((a, b) => share(b) - share(a)).slice(0, 12);
  return el("section", {}, el("h3", {}, "Documents that use it most"), documentList(order, share));
}

function documentList(documents, value, text = percent) {
  return el("ol", { class: "documents" }, documents.map((n) => el("li", {}, el("button", { type: "button", class: "row", onclick: () => set({ document: n, place: null, tab: "document" }) },
    el("span", { class: "value" }, text(value(n))), el("span", { class: "word" }, data.documents[n])))));
}

function startTopicPanel() {
  view(["tab", "topic", "names", "by"], drawTopic);
  view(["tab", "topic", "names", "by", "weight", "word"], drawWords);
  view(["other"], () => {
    if (state.tab === "topic") drawTopic();
    if (state.tab === "topic") drawWords();
  });
}
