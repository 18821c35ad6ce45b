// The search field: topics, words and documents by what they begin with, then by what they hold.
let found = [], active = -1;

function matches(text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [];
  const look = (list, count, make) => {
    const starts = [], holds = [];
    list.forEach((entry, i) => {
      const at = String(entry).toLowerCase().indexOf(wanted);
      if (at === 0) starts.push(i);
      else if (at > 0) holds.push(i);
    });
    starts.sort((a, b) => String(list[a]).length - String(list[b]).length);
    return [...starts, ...holds].slice(0, count).map(make);
  };
  return [
    ...look(data.vocabulary, 5, (w) => ({ kind: "word", text: data.vocabulary[w], go: { word: w, tab: "word" } })),
    ...look(Array.from({ length: data.T }, (_, t) => label(t)), 4, (t) => ({ kind: "topic", text: label(t), go: { topic: t, tab: "topic" } })),
    ...look(data.documents, 6, (n) => ({ kind: "document", text: data.documents[n], go: { document: n, place: null, tab: "document" } })),
  ];
}

function showFound() {
  const list = $("found"), field = $("search");
  list.replaceChildren(...found.map(({ kind, text }, i) => el("li", { role: "option", id: `found-${i}`, "aria-selected": String(i === active), onpointerdown: (event) => {
    event.preventDefault();
    take(i);
  } }, el("span", {}, text), el("small", {}, kind))));
  const open = field.value.trim() !== "";
  list.hidden = !open;
  field.setAttribute("aria-expanded", String(open));
  if (open && !found.length) list.append(el("li", { role: "option", "aria-disabled": "true", "aria-selected": "false" }, "Nothing is called so."));
  if (active >= 0) field.setAttribute("aria-activedescendant", `found-${active}`);
  else field.removeAttribute("aria-activedescendant");
}

function take(i) {
  const field = $("search");
  field.value = "";
  const { go, text } = found[i];
  found = [];
  showFound();
  set(go);
  say(`${text} is shown.`);
}

function startSearch() {
  const field = $("search");
  field.addEventListener("input", () => {
    found = matches(field.value);
    active = found.length ? 0 : -1;
    showFound();
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (found.length) active = (active + (event.key === "ArrowDown" ? 1 : -1) + found.length) % found.length;
      showFound();
    } else if (event.key === "Enter" && active >= 0) take(active);
    else if (event.key === "Escape") {
      field.value = "";
      found = [];
      showFound();
    }
  });
  field.addEventListener("blur", () => {
    $("found").hidden = true;
    field.setAttribute("aria-expanded", "false");
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) return;
    event.preventDefault();
    field.focus();
  });
}
