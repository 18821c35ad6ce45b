// One document: its topics, its words coloured by responsibility, and the words that the model predicts or misses.
const TINTS = 6; // topics of a document that get a colour of their own
let alone = null; // a topic whose responsibilities alone are shown
const SHOWN = 500; // different words of a document that are shown at first

function drawDocument() {
  const panel = $("panel-document"), n = state.document;
  if (panel.hidden) return;
  if (n === null) {
    panel.replaceChildren(el("p", { class: "empty" }, "Choose a document: on the map, in a topic, or by its name in the search field."));
    return;
  }
  alone = null;
  const go = (step) => set({ document: (n + step + data.N) % data.N, place: null });
  panel.replaceChildren(
    el("div", { class: "title" },
      el("div", { class: "line" }, el("h3", { class: "big" }, data.documents[n]),
        el("span", { class: "steps" }, el("button", { type: "button", class: "plain", "aria-label": "The document before", onclick: () => go(-1) }, "\u2190"),
          el("button", { type: "button", class: "plain", "aria-label": "The next document", onclick: () => go(1) }, "\u2192"))),
      el("p", { class: "small", id: "moved" })),
    el("section", {}, el("h3", {}, "Topics"), el("ol", { class: "shares", id: "shares" })),
    el("section", {}, el("h3", {}, data.texts ? "Text, by topic" : "Words, by topic"), el("p", { class: "text", id: "text" })),
    el("div", { class: "pair", id: "surprises" }),
  );
  drawShares();
}

function drawShares() {
  const n = state.document;
  if (state.tab !== "document" || n === null || !$("shares")) return;
  const shares = sharesOf(n, state.place), before = state.place ? sharesOf(n, null) : null;
  const here = hasPlaces() ? priorShares(...clamped(state.place || place(n))) : null;
  const used = strongest(shares, 10).filter((t, i) => i < 1 || shares[t] >= 0.01);
  const top = [...used, ...(here ? strongest(here, 3) : []).filter((t) => !used.includes(t))];
  const colour = new Map(used.slice(0, TINTS).map((t, i) => [t, i]));
  drawMoved(n);
  const list = $("shares"), focus = document.activeElement?.dataset?.topic;
  list.replaceChildren(...top.map((t) => {
    const tick = here ? el("span", { class: "tick", style: { "--v": here[t].toFixed(4) }, "aria-hidden": "true" }) : null;
    const was = before ? el("span", { class: "was", style: { "--v": before[t].toFixed(4) }, "aria-hidden": "true" }) : null;
    return el("li", {}, el("button", { type: "button", class: "row", "data-topic": t, "aria-pressed": String(alone === t),
      onclick: () => {
        alone = alone === t ? null : t;
        set({ topic: t });
        drawShares();
      } },
    el("i", { class: colour.has(t) ? `dot tint${colour.get(t)}` : "dot", "aria-hidden": "true" }), el("span", { class: "value" }, percent(shares[t])),
    el("span", { class: "track", "aria-hidden": "true" }, el("span", { class: "bar", style: { "--v": shares[t].toFixed(4) } }), was, tick), el("span", { class: "word" }, label(t))));
  }));
  if (focus !== undefined) list.querySelector(`[data-topic="${focus}"]`)?.focus();
  drawText(n, shares, colour);
  drawSurprises(n, shares);
}

function drawMoved(n) {
  const sample = data.N < data.allDocuments ? " of the sample" : "";
  const parts = [`${plural(data.lengths[n], "word")}, ${number(n + 1)} of ${number(data.N)} documents${sample}. `];
  if (state.place) {
    parts.push("Its topics as they would be at the marker\u2019s place, from the same words. ", el("button", { type: "button", class: "link", onclick: () => set({ place: null }) }, "Put it back"));
  } else if (hasPlaces()) parts.push("Drag its marker on the map to move it; the tick on a bar is what its place alone suggests.");
  $("moved").replaceChildren(...parts);
}

// A word in the colour of the topic that most probably wrote it, or in the strength of the one that is looked at alone.
function token(text, word, r, colour, count = 1) {
  const main = strongest(r, 1)[0], rank = colour.has(main) ? colour.get(main) : TINTS;
  const strength = alone === null ? (rank < TINTS ? r[main] : 0) : r[alone];
  const means = strongest(r, 2).filter((t) => r[t] > 0.05).map((t) => `${label(t)} ${percent(r[t])}`).join("; ");
  return el("span", { class: `token tint${alone === null ? rank : colour.get(alone) ?? 0}`, style: { "--r": strength.toFixed(3) }, title: means }, text, count > 1 ? el("sup", {}, count) : null);
}

// The text itself; words that the model does not know stay grey.
function drawRunningText(n, shares, colour) {
  data.numberOf ??= new Map(data.vocabulary.map((word, w) => [word, w]));
  const text = data.texts[n].normalize("NFC"), seen = new Map(), parts = [];
  let end = 0;
  for (const found of text.matchAll(/\p{L}+/gu)) {
    const word = data.numberOf.get(found[0].toLowerCase());
    if (word === undefined) continue;
    if (!seen.has(word)) seen.set(word, responsibilities(word, shares));
    parts.push(text.slice(end, found.index), token(found[0], word, seen.get(word), colour));
    end = found.index + found[0].length;
  }
  $("text").classList.add("running");
  $("text").replaceChildren(...parts, text.slice(end));
}

function drawText(n, shares, colour) {
  if (data.texts) {
    drawRunningText(n, shares, colour);
    return;
  }
  const words = entriesOf(n).map(({ word, count }) => {
    const r = responsibilities(word, shares), main = strongest(r, 1)[0];
    return { word, count, r, main, rank: colour.has(main) ? colour.get(main) : TINTS };
  });
  words.sort((a, b) => a.rank - b.rank || b.count * b.r[b.main] - a.count * a.r[a.main]);
  const shown = words.slice(0, SHOWN).flatMap(({ word, count, r }) => [token(data.vocabulary[word], word, r, colour, count), " "]);
  if (words.length > SHOWN) shown.push(el("span", { class: "small" }, `and ${number(words.length - SHOWN)} more.`));
  $("text").replaceChildren(...shown);
}

function drawSurprises(n, shares) {
  const chance = predicted(shares), tokens = data.lengths[n], entries = entriesOf(n);
  const present = new Set(entries.map((entry) => entry.word));
  const absent = strongest(chance, 60).filter((w) => !present.has(w)).slice(0, 8);
  const surprise = entries.map(({ word, count }) => { // how unlikely a Poisson count of the expected size is
    const expected = tokens * chance[word];
    return { word, count, much: count > expected ? count * Math.log(count / expected) - (count - expected) : 0 };
  });
  surprise.sort((a, b) => b.much - a.much);
  const word = (w, text) => el("li", {}, el("button", { type: "button", class: "row", onclick: () => set({ word: w, tab: "word" }) }, el("span", { class: "value" }, text), el("span", { class: "word" }, data.vocabulary[w])));
  $("surprises").replaceChildren(
    el("section", {}, el("h3", {}, "Predicted, and not there"), el("p", { class: "small" }, "Times that the model would expect it"), el("ol", { class: "list" }, absent.map((w) => word(w, (tokens * chance[w]).toFixed(1))))),
    el("section", {}, el("h3", {}, "There more than predicted"), el("p", { class: "small" }, "Times there, of times expected"), el("ol", { class: "list" }, surprise.slice(0, 8).map(({ word: w, count }) => word(w, `${count} / ${(tokens * chance[w]).toFixed(1)}`)))),
  );
}

function startDocumentPanel() {
  view(["tab", "document"], drawDocument);
  view(["place", "names"], drawShares);
}
