// What the pictures share: drawing, sliders, and things that one can drag or move with the arrow keys.
const plays = {};
const arrays = JSON.parse($("arrays").textContent);

function svg(tag, properties = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(properties)) if (value !== null && value !== undefined) node.setAttribute(key, value);
  node.append(...children.flat(Infinity).filter((child) => child !== null));
  return node;
}

const canvasOf = (width, height, label) => svg("svg", { viewBox: `0 0 ${width} ${height}`, style: `max-width: ${1.25 * width}px`, role: "group", "aria-label": label });
const text = (x, y, content, properties = {}) => svg("text", { x, y, ...properties }, content);
const line = (x1, y1, x2, y2, name = "axis") => svg("line", { x1, y1, x2, y2, class: name });
const path = (points, name) => svg("path", { d: points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join(""), class: name });

function slider(name, label, [least, most, step], value, show, change) {
  const output = el("output", { for: name }, show(value));
  const input = el("input", { type: "range", id: name, min: least, max: most, step, value, "aria-valuetext": show(value) });
  input.addEventListener("input", () => {
    output.textContent = show(Number(input.value));
    input.setAttribute("aria-valuetext", show(Number(input.value)));
    change(Number(input.value));
  });
  return el("div", { class: "control" }, el("label", { for: name }, label), output, input);
}

// A handle in a drawing: `move` gets the place in the drawing's own units, by pointer or by arrow keys.
function handle(drawing, label, shape, place, step, move) {
  const node = svg("g", { class: "handle", tabindex: 0, role: "slider", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100 }, shape);
  const tell = () => {
    const [x, y, extent] = place();
    node.setAttribute("aria-valuenow", Math.round((100 * x) / extent));
    node.setAttribute("aria-valuetext", `${Math.round((100 * x) / extent)} of 100 across, ${Math.round(100 - (100 * y) / extent)} of 100 up`);
  };
  const at = (event) => {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(drawing.getScreenCTM().inverse());
    return [point.x, point.y];
  };
  let grip = null;
  node.addEventListener("pointerdown", (event) => {
    const [x, y] = at(event), now = place();
    grip = [now[0] - x, now[1] - y];
    node.setPointerCapture(event.pointerId);
    node.focus();
    event.preventDefault();
  });
  node.addEventListener("pointermove", (event) => {
    if (!grip || !node.hasPointerCapture(event.pointerId)) return;
    const [x, y] = at(event);
    move(x + grip[0], y + grip[1]);
    tell();
  });
  node.addEventListener("pointerup", () => (grip = null));
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  node.addEventListener("keydown", (event) => {
    const by = steps[event.key];
    if (!by) return;
    event.preventDefault();
    const [x, y] = place(), size = event.shiftKey ? 4 * step : step;
    move(x + by[0] * size, y + by[1] * size);
    tell();
  });
  tell();
  return node;
}

const within = (value, least, most) => Math.min(most, Math.max(least, value));

function startPlays() {
  for (const [name, draw] of Object.entries(plays)) {
    const section = el("section", { class: "play", id: name });
    $("plays").append(section);
    draw(section, arrays[name]);
  }
  document.documentElement.dataset.ready = "true";
}
