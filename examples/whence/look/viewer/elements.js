// Small functions for every file: lists and numbers, and elements of the page.

// ---- Lists and numbers
export const counted = (count) => Array.from({ length: count }, (_, index) => index);
export const unique = (list) => [...new Set(list)];
export const clamped = (value, low, high) => Math.min(high, Math.max(low, value));

const kept = new Map();
export const forget = () => kept.clear();
export function once(key, build) {
  if (!kept.has(key)) kept.set(key, build());
  return kept.get(key);
}

// A masked entry is null in place of a number. A value next to a whole number gets the digits that distinguish both.
export function format(value, digits = 4) {
  if (value === null) return "masked";
  if (value === 0 || !Number.isFinite(value)) return String(value);
  const size = Math.abs(value), rounded = Number(value.toPrecision(digits));
  if (size < 1e-3 || size >= 1e6) return value.toExponential(digits - 1);
  const merged = digits > 3 && size < 1000 && Number.isInteger(rounded) && !Number.isInteger(value);
  return merged && digits < 7 ? format(value, digits + 1) : String(rounded);
}

// A loss that is not finite is null.
export const loss_text = (loss, digits) => loss === null ? "not finite" : format(loss, digits);

export const sum_of = (list) => list.reduce((sum, value) => sum + value, 0);
export const norm_of = (vector) => Math.sqrt(sum_of(Array.from(vector, (value) => value * value)));

// ---- Elements
// Sets attributes and appends children, except null ones. An attribute whose name begins with "on" is a listener.
export function dress(element, attributes, ...children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean" && name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null));
  return element;
}
export const make = (tag, attributes = {}, ...children) => dress(document.createElement(tag), attributes, ...children);
export const note = (...words) => make("p", { class: "note" }, ...words);
export const button = (text, focus, onclick, attributes = {}) =>
  make("button", { type: "button", "data-focus": focus, onclick, ...attributes }, text);
export const token_text = (text) => make("bdi", { class: "token" }, text ?? "");

// ---- Pictures
export const draw = (tag, attributes = {}, ...children) =>
  dress(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, ...children);
export const svg_line = (name, [x1, y1], [x2, y2]) => draw("line", { class: name, x1, y1, x2, y2 });
export const svg_text = (name, x, y, words) => draw("text", { class: name, x, y }, words);

// ---- Tables
// A line is a row or its cells; a heading has the class of the first line's cell below it.
export function table_of(headings, lines, attributes = {}) {
  const rows = lines.map((line) => Array.isArray(line) ? make("tr", {}, line) : line);
  const heads = headings.map((words, k) =>
    make("th", { scope: "col", class: rows[0]?.cells[k]?.className || null }, words));
  return make("div", { class: "scroll" },
    make("table", attributes, make("thead", {}, make("tr", {}, heads)), make("tbody", {}, rows)));
}
export const name_cell = (...words) => make("th", { scope: "row" }, ...words);
export const right_cell = (words) => make("td", { class: "n" }, words);

// A bar for a share between -1 and 1: from the middle of the cell to either side, or from its left if `from` is 0. It shrinks where
// numbers need the room.
export function bar_cell(share, from = 50) {
  const size = (100 - from) * Math.min(1, Math.abs(share)), left = share < 0 ? from - size : from;
  const ink = from === 0 ? "--c0" : share < 0 ? "--minus" : "--plus";
  const bar = `linear-gradient(var(${ink}) 0 0) ${100 * left / (100 - size) || 0}% 50% / ${size}% 12px no-repeat`;
  const middle = from ? "linear-gradient(var(--soft) 0 0) 50% / 1px 100% no-repeat, " : "";
  return make("td", { class: "amount", "aria-hidden": "true", style: `background: ${middle}${bar}` });
}

export const acting_row = (focus, act, cells, attributes = {}) => make("tr",
  { tabindex: 0, "data-focus": focus, onclick: act, onkeydown: on_button_keys(act), ...attributes }, cells);

// Builds the contents on opening.
export function folded(summary, build) {
  const details = make("details", { class: "behind" }, make("summary", {}, summary));
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) dress(details, {}, build());
  });
  return details;
}

// ---- Keys
// `move_of` returns the move of a key. Keys that it does not know, or with Ctrl, Alt or Meta, are left to the browser.
export const on_keys = (move_of, act) => (event) => {
  const move = event.ctrlKey || event.altKey || event.metaKey ? undefined : move_of(event.key);
  if (move === undefined) return;
  event.preventDefault();
  act(move, event.key);
};
export const on_button_keys = (act) => on_keys((key) => key === "Enter" || key === " " || undefined, () => act());

// A command to be copied; its lines break between words only.
export const command_code = (text) =>
  make("code", { class: "command" }, ...text.split(/(?<= )/).map((word) => make("span", {}, word)));
