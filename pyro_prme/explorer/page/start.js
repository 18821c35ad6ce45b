// Puts the page together once its data are unpacked.
const TABS = [["topics", "Topics"], ["topic", "Topic"], ["document", "Document"], ["word", "Word"], ["correlations", "Correlations"]];

function startTabs() {
  const tabs = TABS.map(([id, text]) => el("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `panel-${id}`, onclick: () => set({ tab: id }) }, text));
  $("tabs").append(...tabs);
  $("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const open = tabs.filter((tab) => tab.offsetParent !== null), next = open[(open.indexOf(document.activeElement) + step + open.length) % open.length];
    next.focus();
    next.click();
  });
  const list = document.querySelector(".topics"), layout = document.querySelector(".layout"), wide = matchMedia("(min-width: 1280px)");
  const arrange = () => {
    if (wide.matches) layout.prepend(list);
    else $("panel-topics").append(list);
    $("tab-topics").hidden = wide.matches;
    if (wide.matches && state.tab === "topics") set({ tab: "topic" }, { link: "replace" });
  };
  wide.addEventListener("change", arrange);
  arrange();
  view(["tab"], () => {
    for (const [id] of TABS) {
      const on = state.tab === id, tab = $(`tab-${id}`);
      $(`panel-${id}`).hidden = !on;
      tab.setAttribute("aria-selected", String(on));
      tab.tabIndex = on ? 0 : -1;
    }
  });
}

function startText() {
  const sample = data.N < data.allDocuments;
  const words = data.W < data.allWords ? `the ${number(data.W)} most frequent of ${number(data.allWords)} words` : plural(data.W, "word");
  const documents = sample ? `a sample of ${number(data.N)} of ${number(data.allDocuments)} documents` : plural(data.N, "document");
  $("summary").textContent = `${documents}, ${words}, ${data.T} topics in use of at most ${data.numTopics}`;
  $("summary").textContent = $("summary").textContent.replace(/^./, (letter) => letter.toUpperCase());
  const p = (text) => el("p", {}, text);
  $("about").append(
    p(`The model is ${data.model}. A topic is in use if it is among those that together hold 99% of the tokens.`),
    hasPlaces() ? p("Every document has a place, h, and the map is the plane in which these places differ most. A topic\u2019s paintbox says how strong it is for a document at each place, before any of its words is seen, as a share of its value where it is strongest for the documents; the paint fades where there are no documents, because nothing was learned there. Topics that are painted in the same places belong to the same documents: choose a second topic to see both.")
      : p("The model has no random function of places, so the map has no paint: documents lie near one another if they have similar topics."),
    p("Words are ranked by probability; by lift, the probability over that in all topics; or by FREX, the harmonic mean of the ranks by frequency and by exclusiveness. The slider weighs the two sides."),
    p("A word of a document is coloured by the topic that most probably wrote it there, the stronger the surer. What is predicted is the document\u2019s shares of the topics times the topics\u2019 words. The model has seen these documents, so that this is not a test of it."),
    hasPlaces() ? p("Moving a document keeps its words, and computes its topics anew from them and from the paintboxes at its new place. What its place has outside of the plane is left out then, which is why topics can jump a little when it is first moved.") : "",
    sample ? p(`The whole corpus has ${number(data.allDocuments)} documents. This page shows ${number(data.N)} of them, drawn at random, so that the file stays small. Usage is that of all documents; correlations are over the documents shown.`) : "",
    p("Keys: / to search, arrows in lists, tabs, the matrix and on the marker (with Shift for larger steps), Escape to put a document back. The address of this page always leads back to what you see."),
  );
}

function startThemes() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const change = (theme) => {
    setTheme(theme);
    drawThumbnails();
    drawPaint();
    drawRings();
    drawLegend();
    drawMatrix();
  };
  $("theme").addEventListener("click", () => change(palette.dark ? "light" : "dark"));
  dark.addEventListener("change", () => change(dark.matches ? "dark" : "light"));
  setTheme(dark.matches ? "dark" : "light");
  drawThumbnails();
}

async function start() {
  data = await unpack($("data").textContent.trim());
  $("data").remove();
  Object.assign(state, readLink());
  if (state.other === state.topic) state.other = null;
  startText();
  startTopics();
  startTabs();
  startThemes();
  startTopicPanel();
  startDocumentPanel();
  startWordPanel();
  startCorrelations();
  startMap();
  startSearch();
  view(["topic"], () => state.other === state.topic && set({ other: null }, { link: "replace" }));
  $("other").addEventListener("change", () => set({ other: $("other").value === "" ? null : Number($("other").value) }));
  window.addEventListener("popstate", () => set(readLink(), { link: null }));
  redraw(null);
  window.pyroPrme = { data, state, set, topWords, sharesOf, label }; // for consoles and tests
  document.documentElement.dataset.ready = "true";
}

start().catch((error) => {
  $("summary").textContent = "The page could not be unpacked: it needs a browser of 2023 or later.";
  throw error;
});
