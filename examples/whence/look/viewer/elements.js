// What every file uses: small functions of lists and numbers, and elements of the page.

// ---- Lists and numbers
export const counted = (count) => Array.from({ length: count }, (_, index) => index);
export const unique = (list) => [...new Set(list)];
export const clamped = (value, low, high) => Math.min(high, Math.max(low, value));

const kept = new Map();
export function once(key, build) {
  if (!kept.has(key)) kept.set(key, build());
  return kept.get(key);
}

export function format(value, digits = 4) {
  if (value === 0 || !Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  return size < 1e-3 || size >= 1e6 ? value.toExponential(digits - 1) : String(Number(value.toPrecision(digits)));
}

export const sum_of = (list) => list.reduce((sum, value) => sum + value, 0);
export const norm_of = (vector) => Math.sqrt(sum_of(Array.from(vector, (value) => value * value)));

// ---- Elements
export function dress(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean" && name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
export const make = (tag, attributes = {}, ...children) => dress(document.createElement(tag), attributes, children);
export const draw = (tag, attributes = {}, ...children) =>
  dress(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

export const table_of = (head, lines, attributes = {}) => make("div", { class: "scroll" }, make("table", attributes,
  make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...lines)));
export const heading = (text, numeric = false) => make("th", { scope: "col", ...(numeric ? { class: "n" } : {}) }, text);
export const on_button_keys = (act) => (event) => {
  if (event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  act();
};

// A command to be copied: broken between its words alone.
export const command_code = (text) =>
  make("code", { class: "command" }, ...text.split(/(?<= )/).map((word) => make("span", {}, word)));
