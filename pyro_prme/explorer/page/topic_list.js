// The list of topics: a paintbox as a thumbnail, the name, the usage, and how lit it is by what is selected.
const SORTS = { usage: "usage", correlation: "correlation", lit: "what is selected", name: "name" };
let rows = [];

// What lights topics up: the document at its place, or else the word.
function light() {
  const looksAt = { document: "document", topics: "document", word: "word" }[state.tab];
  if (looksAt === "document" && state.document !== null) return sharesOf(state.document, state.place);
  return looksAt === "word" && state.word !== null ? topicsOfWord(state.word) : null;
}

function startTopics() {
  for (const [value, text] of Object.entries(SORTS)) $("sort").append(el("option", { value }, text));
  $("sort").addEventListener("change", () => set({ sort: $("sort").value }, { link: "replace" }));
  rows = Array.from({ length: data.T }, (_, t) => {
    const picture = hasPlaces() ? el("canvas", { "aria-hidden": "true", width: 40, height: 40 }) : null;
    const name = el("span", { class: "name" }), share = el("span", { class: "share" }), lit = el("span", { class: "lit" });
    const button = el("button", { type: "button", onclick: () => set({ topic: t, tab: state.tab === "topics" ? "topic" : state.tab }) },
      picture, el("span", { class: "about" }, name, el("span", { class: "bars" }, bar(data.usage[t] / data.usage[0]), lit)), share);
    return { t, item: el("li", {}, button), button, name, share, lit, picture };
  });
  rows.forEach(({ share, t }) => (share.textContent = percent(data.usage[t])));
  $("topics").append(...rows.map((row) => row.item));
  $("topics").addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const buttons = [...$("topics").querySelectorAll("button")], at = buttons.indexOf(document.activeElement);
    if (at < 0 || !buttons[at + step]) return;
    event.preventDefault();
    buttons[at + step].focus();
  });
  view(["sort", "names", "document", "word", "tab"], sortTopics);
  view(["topic", "other", "document", "place", "word", "tab", "names"], markTopics);
  startNames();
}

function sortTopics() {
  $("sort").value = state.sort;
  const lit = light() || data.usage, by = {
    usage: (a, b) => a.t - b.t,
    correlation: (a, b) => data.order.indexOf(a.t) - data.order.indexOf(b.t),
    lit: (a, b) => lit[b.t] - lit[a.t],
    name: (a, b) => label(a.t).localeCompare(label(b.t)),
  }[state.sort];
  const sorted = [...rows].sort(by), shown = [...$("topics").children];
  if (sorted.some((row, i) => shown[i] !== row.item)) {
    const focused = document.activeElement;
    $("topics").append(...sorted.map((row) => row.item));
    if (document.activeElement !== focused) focused.focus();
  }
}

function markTopics() {
  const shares = light();
  for (const { t, button, name, lit } of rows) {
    name.textContent = label(t);
    button.toggleAttribute("data-other", t === state.other);
    if (t === state.topic) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
    lit.hidden = !shares;
    if (!shares) continue;
    lit.style.setProperty("--v", shares[t].toFixed(4));
    button.style.setProperty("--lit", Math.min(1, 2 * shares[t]).toFixed(3));
  }
  $("topics").toggleAttribute("data-lit", Boolean(shares));
  const select = $("other");
  if (select.dataset.names !== `${state.topic} ${names.size} ${[...names.values()].join()}`) {
    select.dataset.names = `${state.topic} ${names.size} ${[...names.values()].join()}`;
    const order = Array.from({ length: data.T }, (_, t) => t).filter((t) => t !== state.topic);
    order.sort((a, b) => data.correlation(state.topic, b) - data.correlation(state.topic, a));
    select.replaceChildren(el("option", { value: "" }, "nothing"),
      ...order.map((t) => el("option", { value: t }, `${signed(data.correlation(state.topic, t))} ${label(t)}`)));
  }
  select.value = state.other ?? "";
}

function drawThumbnails() {
  if (!hasPlaces()) return;
  for (const { t, picture } of rows) {
    const context = sharp(picture, 40, 40);
    paintInto(context, 40, t, null, 40);
  }
}

// Names that readers give go into a small file and come back from it.
function startNames() {
  for (const [number, name] of Object.entries(data.names)) {
    const t = data.numbers.indexOf(Number(number));
    if (t >= 0) names.set(t, name);
  }
  $("save-names").addEventListener("click", () => {
    const topics = Object.fromEntries([...names].map(([t, name]) => [data.numbers[t], name]));
    const text = JSON.stringify({ format: "pyro_prme topic names", topics }, null, 2);
    el("a", { href: URL.createObjectURL(new Blob([text], { type: "application/json" })), download: "topic-names.json" }).click();
    say(`${plural(names.size, "name")} saved.`);
  });
  $("load-names").addEventListener("click", () => $("names-file").click());
  $("names-file").addEventListener("change", async () => {
    const file = $("names-file").files[0];
    if (!file) return;
    try {
      const content = JSON.parse(await file.text());
      if (content.format !== "pyro_prme topic names") throw new Error();
      for (const [number, name] of Object.entries(content.topics)) rename(data.numbers.indexOf(Number(number)), String(name));
      redraw(["names"]);
      say("The names are loaded.");
    } catch {
      say("This file holds no names of topics.");
      alert("This file holds no names of topics: choose one that this page has saved.");
    }
    $("names-file").value = "";
  });
}

function rename(t, name) {
  if (t < 0) return;
  if (name.trim()) names.set(t, name.trim());
  else names.delete(t);
}
