// Elements of the page in few words; texts of the corpus go in as text, never as HTML.
const $ = (id) => document.getElementById(id);

function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [name, v] of Object.entries(value)) node.style.setProperty(name, v);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

const percent = (share) => (share >= 0.0995 ? `${Math.round(100 * share)}%` : `${(100 * share).toFixed(1)}%`);
const signed = (r) => `${r < 0 ? "\u2212" : "+"}${Math.abs(r).toFixed(2)}`;
const number = (value) => Math.round(value).toLocaleString("en");
const plural = (count, what) => `${number(count)} ${what}${count === 1 ? "" : "s"}`;

// A bar that shows a share by its length; the number stands beside it for those who do not see it.
const bar = (share, extra = "") => el("span", { class: `bar ${extra}`, style: { "--v": Math.max(0, Math.min(1, share)).toFixed(4) }, "aria-hidden": "true" });

function say(text) {
  $("said").textContent = text;
}
