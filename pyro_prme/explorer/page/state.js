// What is selected, the views that depend on it, and the link that brings it back.
let data;
const names = new Map(); // given by the reader, by topic
const state = {
  tab: "topic", topic: 0, other: null, document: null, word: null, by: "frex", weight: 0.5, sort: "usage", place: null,
};
const views = [];

// Draws again whenever one of the keys changes.
function view(keys, draw) {
  views.push({ keys, draw });
}

function set(change, { link = "push" } = {}) {
  if ("document" in change && change.document !== state.document) change.place ??= null;
  const changed = Object.keys(change).filter((key) => JSON.stringify(state[key]) !== JSON.stringify(change[key]));
  if (!changed.length) return;
  Object.assign(state, change);
  if (link) writeLink(link);
  redraw(changed);
}

function redraw(changed) {
  for (const { keys, draw } of views) if (!changed || keys.some((key) => changed.includes(key))) draw();
}

function writeLink(how) {
  const link = new URLSearchParams({ tab: state.tab, topic: data.numbers[state.topic] });
  if (state.other !== null) link.set("with", data.numbers[state.other]);
  if (state.document !== null) link.set("document", data.rows[state.document]);
  if (state.place) link.set("at", state.place.map((v) => v.toFixed(3)).join(","));
  if (state.word !== null) link.set("word", data.vocabulary[state.word]);
  link.set("by", state.by);
  if (state.by !== "probability") link.set("weight", state.weight);
  if (state.sort !== "usage") link.set("sort", state.sort);
  try {
    history[how === "push" ? "pushState" : "replaceState"](null, "", `#${link}`);
  } catch {
    // a page shown inside another may not write links: it works without them
  }
}

// What a link says; whatever it does not say, or says wrongly, stays at its default.
function readLink() {
  const link = new URLSearchParams(location.hash.slice(1));
  const find = (list, key) => {
    const at = link.has(key) ? [...list].findIndex((value) => String(value) === link.get(key)) : -1;
    return at < 0 ? null : at;
  };
  const one = (key, known, otherwise) => (known.includes(link.get(key)) ? link.get(key) : otherwise);
  const at = (link.get("at") || "").split(",").map(Number);
  const weight = Number(link.get("weight") ?? 0.5);
  return {
    tab: one("tab", TABS.map(([id]) => id), "topic"),
    topic: find(data.numbers, "topic") ?? 0,
    other: find(data.numbers, "with"),
    document: find(data.rows, "document"),
    word: find(data.vocabulary, "word"),
    by: one("by", Object.keys(RANKINGS), "frex"),
    weight: weight >= 0 && weight <= 1 ? weight : 0.5,
    sort: one("sort", Object.keys(SORTS), "usage"),
    place: at.length === 2 && at.every((v) => Math.abs(v) <= 1) && link.has("document") ? at : null,
  };
}

const hasPlaces = () => data.loadings !== null;
const label = (t) => names.get(t) || data.labels[t].slice(0, 3).map((w) => data.vocabulary[w]).join(", ");
