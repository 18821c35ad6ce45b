// What scrolls by itself can be reached by the keyboard.
document.addEventListener("DOMContentLoaded", () => {
  const mark = () => document.querySelectorAll("pre, div.math, .table-wrapper, .cell_output").forEach((box) => {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  });
  mark();
  new ResizeObserver(mark).observe(document.body);
});

// Sphinx lays out the parameters of long signatures as a list of definitions without terms: it is no list to be read out.
document.addEventListener("DOMContentLoaded", () => {
  for (const part of document.querySelectorAll("dt.sig dl, dt.sig dl > dd")) part.setAttribute("role", "none");
});
