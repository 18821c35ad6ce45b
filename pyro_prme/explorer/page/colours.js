// Colours come from the style sheet, so that light and dark have one home.
const palette = {};

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "ink", "muted", "line", "accent", "second", "box"]) {
    palette[name] = rgb(style.getPropertyValue(`--${name}`));
  }
  palette.dark = palette.paper[0] < 128;
}

function rgb(text) {
  const hex = text.trim().slice(1);
  return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

const css = (colour, alpha = 1) => `rgb(${colour.map(Math.round).join(" ")} / ${alpha})`;
const between = (from, to, v) => from.map((c, i) => c + (to[i] - c) * v);

// Paint of one topic, or of two: where both are strong the colours add up to something that neither is.
function paintColour(first, second) {
  const box = palette.box;
  if (second === null) return between(box, palette.accent, first);
  if (palette.dark) {
    return box.map((c, i) => Math.min(255, c + first * (palette.accent[i] - c) + second * Math.max(palette.second[i] - c, 0) * (1 - 0.35 * first)));
  }
  return box.map((c, i) => c * (1 - first * (1 - palette.accent[i] / 255)) * (1 - second * (1 - palette.second[i] / 255)));
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").textContent = theme === "dark" ? "Light" : "Dark";
  $("theme").setAttribute("aria-label", `Change to ${theme === "dark" ? "light" : "dark"} colours`);
  readColours();
}

// A canvas as sharp as the screen; gives its drawing context with lengths in CSS pixels.
function sharp(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
