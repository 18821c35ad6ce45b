const pages = [...document.querySelectorAll("section")];
const place = document.getElementById("place");
let current = 0;
function show(number) {
  current = Math.max(0, Math.min(pages.length - 1, number));
  pages.forEach((page, i) => page.classList.toggle("current", i === current));
  place.textContent = `${current + 1} / ${pages.length}`;
  history.replaceState(null, "", `#${current + 1}`);
  window.scrollTo(0, 0);
  pages[current].focus();
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const step = { ArrowRight: 1, PageDown: 1, " ": 1, ArrowLeft: -1, PageUp: -1 }[event.key];
  if (step) { event.preventDefault(); show(current + step); }
  if (event.key === "Home") show(0);
  if (event.key === "End") show(pages.length - 1);
  if (event.key === "n" || event.key === "N") {
    const notes = pages[current].querySelector("aside");
    if (notes) notes.hidden = !notes.hidden;
  }
  if (event.key === "p" || event.key === "P") window.print();
});
let touch = null;
document.addEventListener("touchstart", (event) => { touch = event.changedTouches[0].clientX; });
document.addEventListener("touchend", (event) => {
  const moved = event.changedTouches[0].clientX - touch;
  if (Math.abs(moved) > 60) show(current + (moved < 0 ? 1 : -1));
});
window.addEventListener("hashchange", () => show(Number(location.hash.slice(1)) - 1));
show((Number(location.hash.slice(1)) || 1) - 1);
