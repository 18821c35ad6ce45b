// One word: the topics that it belongs to and the documents that hold it.
const holders = new Map();

function documentsOfWord(w) {
  if (!holders.has(w)) {
    const found = [];
    for (let n = 0; n < data.N; n++) for (let e = data.pointer[n]; e < data.pointer[n + 1]; e++) if (data.words[e] === w) found.push([n, data.counts[e]]);
    found.sort((a, b) => b[1] - a[1]);
    holders.set(w, found);
  }
  return holders.get(w).map(([n]) => n);
}

function drawWord() {
  const panel = $("panel-word"), w = state.word;
  if (panel.hidden) return;
  if (w === null) {
    panel.replaceChildren(el("p", { class: "empty" }, "Choose a word: in a topic, or in the search field."));
    return;
  }
  const documents = documentsOfWord(w), counts = new Map(holders.get(w)), topics = topicsOfWord(w);
  const total = [...counts.values()].reduce((a, b) => a + b, 0);
  panel.replaceChildren(
    el("div", { class: "title" }, el("div", { class: "line" }, el("h3", { class: "big" }, data.vocabulary[w]), el("button", { type: "button", class: "plain", onclick: () => set({ word: null, tab: "topic" }) }, "Forget it")),
      el("p", { class: "small" }, `${number(total)} times in ${plural(documents.length, "document")}, which have a ring on the map.`)),
    el("section", {}, el("h3", {}, "Whose word it is"), el("p", { class: "small" }, "The share of its uses that each topic explains"),
      el("ol", { class: "shares" }, strongest(topics, 8).filter((t) => topics[t] > 0.005).map((t) => el("li", {}, el("button", { type: "button", class: "row", onclick: () => set({ topic: t }) },
        el("span", { class: "value" }, percent(topics[t])), el("span", { class: "track", "aria-hidden": "true" }, bar(topics[t])), el("span", { class: "word" }, label(t))))))),
    el("section", {}, el("h3", {}, "Documents that hold it most"), documentList(documents.slice(0, 15), (n) => counts.get(n), number)),
  );
}

function startWordPanel() {
  view(["tab", "word", "names"], drawWord);
}
