// The data of the page: the quantities of one run and of the runs compared with it, decoded on first use and cut into
// sheets with rows and columns.
import { clamped, counted, forget, once } from "./elements.js";
import { source } from "./source.js";
import { start, state } from "./state.js";

// ---- The run that is shown, and the runs compared with it. An engine later changes these objects.
export const data = {};
export const besides = [];
export const tokens = [];
export const quantities = [];
export const measured = [];
let numbers = null;  // all arrays in one block; the JSON says where each is (look/page_data.h)
// Returns the run of a name. `beside` chooses among `besides`; a place may choose another. A run returns itself.
export const run_named = (run, { beside = state.beside } = {}) =>
  typeof run === "object" ? run : run === "beside" ? besides[beside] : data;

// Returns the numbers of one field of a layer, a parameter or a path, or null. They may have their own block.
const decoded = new WeakMap();
export function decode(holder, field, bits = holder.bits) {
  if (holder[field] == null) return null;
  if (!decoded.has(holder)) decoded.set(holder, {});
  return decoded.get(holder)[field] ??= numbers_at(holder[field], bits, holder.block ?? numbers);
}

const array_types = { 8: Uint8Array, 32: Float32Array, 64: Float64Array, steps: Uint32Array };
function numbers_at({ at, bytes }, bits, block) {
  const Type = array_types[bits], array = new Type(block, at, bytes / Type.BYTES_PER_ELEMENT);
  if (bits !== "steps") return array;
  const sums = array.slice();  // array has differences of neighbours
  for (let k = 1; k < sums.length; ++k) sums[k] += sums[k - 1];
  return sums;
}

// ---- Quantities
// Makes a parameter a quantity of one layer, or of none. Axes of size 1 are dropped; of more than three axes the first
// are merged, so that a selector, rows and columns remain.
function of_parameter({ path, layer, frozen, shape, axes = "", ...part }) {
  const letters = axes.split(" ");
  const named = shape.map((size, axis) => ({ size, letter: letters[axis], own: [[axis, size]] }))
    .filter(({ size }) => size !== 1);
  if (!named.length) named.push({ size: 1, own: [] });
  while (named.length > 3) {
    const [one, other] = named;
    named.splice(0, 2, { size: one.size * other.size, own: [...one.own, ...other.own] });
  }
  if (named.length === 3) named[0].letter = "c";
  const others = ["c", "r", "k"].slice(-named.length);
  return {
    name: path, axes: named.map(({ letter }, axis) => letter || others[axis]).join(" "), scale: "diverging", marks: [],
    caption: frozen ? "a parameter, frozen" : "a parameter", equation: `[${shape.join(", ")}]`, parameter: true,
    own: named.map(({ own }) => own),
    layers: [{ ...part, layer, shape: named.map(({ size }) => size) }],
  };
}

// Makes a run of a page.
function readable(page) {
  const run = { label: "beside", paths: [], edits: [], ...page, words: page.tokens.map(visible) };
  run.all = new Map([...run.quantities, ...run.parameters.map(of_parameter)].map((each) => [each.name, each]));
  return run;
}
// Makes a run of an engine's latest pass.
export function run_of(page, block) {
  for (const part of [...page.quantities.flatMap(({ layers }) => layers), ...page.parameters]) part.block = block;
  return readable(page);
}
export const letters_of = (quantity) => quantity.axes.split(" ").filter((letter) => letter !== "b");
export const part_of = (quantity, layer) =>
  quantity.parameter ? quantity.layers[0] : quantity.layers.find((part) => part.layer === layer);

// Returns the state's key for the index along an axis. The axis t shares the key i with queries.
export const key_of = (axis) => ({ t: "i", h: "head" })[axis] ?? axis;
// Query heads share key heads, of which there are `extent`; the state keeps the first query head that shares one.
const sharing = (axis, extent) =>
  axis === "h" && extent === data.key_heads && extent < data.heads ? data.heads / extent : 1;
export const index_along = (axis, extent, at) => Math.floor((at[key_of(axis)] ?? 0) / sharing(axis, extent));
export const kept_along = (axis, extent, index) => ({ [key_of(axis)]: index * sharing(axis, extent) });
export const extent_of = (quantity, layer, axis) => part_of(quantity, layer).shape[letters_of(quantity).indexOf(axis)];

// Names the number at `at` in the engine's words: `of` what, `along` each axis ["head=0"] (in a parameter ["0=5", "1=3"]).
export function words_of_place(quantity, { layer, shape }, at) {
  const { name, probe, parameter, own } = quantity, letters = letters_of(quantity);
  const along = letters.map((letter, axis) => {
    let index = clamped(index_along(letter, shape[axis], at), 0, shape[axis] - 1);
    if (!parameter) return [`${letter === "h" ? "head" : letter}=${index}`];
    return [...own[axis]].reverse().map(([number, size]) => {
      const here = index % size;
      index = Math.floor(index / size);
      return `${number}=${here}`;
    }).reverse();
  });
  return { of: parameter ? name : `${name.includes(".") ? probe : name} layer=${layer}`, along };
}

export const place_text = ({ of, along }) => [of, ...along.flat()].join(" ");

const axis_words = { h: "head", i: "query i", j: "key j", t: "token t", d: "dimension d", c: "channel c",
                     n: "position n", r: "row", k: "column", w: "path" };
export const word_of = (axis) => axis_words[axis] ?? axis;

// of_pairs is true of quantities of pairs. telling chooses one: a scheme's quantity between 0 and 1 (such as gates),
// else the last that it adds, else the pattern.
export const of_pairs = (quantity) => /^(h )?i j$/.test(letters_of(quantity).join(" "));
export function telling(some) {
  const of_scheme = some.filter((each) => each.scheme && of_pairs(each));
  return (of_scheme.find(({ scale }) => scale === "unit") ?? of_scheme.at(-1) ?? some.find(({ name }) => name === "pattern") ?? some[0])?.name ?? "";
}
// True if two quantities have the same numbers in every layer, as gate logits and scores have where gates compare keys.
export const same_numbers = (one, other) => one && other && once(["same", one.name, other.name].join(" "), () =>
  one.layers.length === other.layers.length && one.layers.every((part, k) => {
    const [a, b] = [part, other.layers[k]].map((each) => decode(each, "value") ?? []);
    return a.length > 0 && a.length === b.length && a.every((value, index) => Object.is(value, b[index]));
  }));
export const run_shown = () => run_named(state.run);  // causes have no difference

// ---- Sheets
// The last two axes are rows and columns, a single axis is a row; `at` chooses along the axes before.
export function slice_of(letters, shape, at) {
  const leading = letters.slice(0, -2);
  const chosen = (axis) => clamped(index_along(leading[axis], shape[axis], at), 0, shape[axis] - 1);
  const index = leading.reduce((sum, _, axis) => sum * shape[axis] + chosen(axis), 0);
  const [rows, columns] = letters.length > 1 ? shape.slice(-2) : [1, shape[0]];
  return { offset: index * rows * columns, rows, columns, row_axis: letters.at(-2) ?? "", column_axis: letters.at(-1) };
}

// Returns the cells that the mask hides, by causes or else by the causal rule; or null.
function hidden_of(run, causes, { rows, columns, row_axis, column_axis }) {
  if (causes) return Uint8Array.from(causes, (cause) => run.causes[cause].kind === "masked");
  if (!run.causal || row_axis !== "i" || column_axis !== "j" || rows !== columns) return null;
  return Uint8Array.from({ length: rows * columns }, (_, cell) => cell % columns > Math.floor(cell / columns));
}

// Returns the extremes shown, so that a reader need not guess them from colours.
export function extremes_of(cells, hidden) {
  let low = Infinity, high = -Infinity;
  cells.forEach((value, cell) => {
    if (hidden?.[cell] || !Number.isFinite(value)) return;
    low = Math.min(low, value);
    high = Math.max(high, value);
  });
  return low <= high ? [low, high] : [0, 0];
}

export function sheet(fields) {
  const extremes = extremes_of(fields.cells, fields.hidden);
  return { hidden: null, causes: null, marks: [], note: "", tells: null,
           row_labels: labels_of(fields.row_axis, fields.run), column_labels: labels_of(fields.column_axis, fields.run),
           shared: () => extremes, ...fields, extremes, pictures: new Map() };
}

// Makes a sheet from a function of row and column, which is null where the mask hides the pair.
export function sheet_made(rows, columns, value_of, fields) {
  const values = counted(rows * columns).map((cell) => value_of(Math.floor(cell / columns), cell % columns));
  const hidden = Uint8Array.from(values, (value) => value === null);
  return sheet({ rows, columns, cells: Float64Array.from(values), hidden, ...fields });
}

// A sheet, or null if it is not recorded. `kind`: "value" or "gradient"; `run`: "this", "beside", "difference" or a run.
export function sheet_of(name, kind, at, run = "this") {
  const of_run = run_named(run, at), quantity = of_run.all.get(name), part = quantity && part_of(quantity, at.layer);
  if (!part || part[kind] == null) return null;
  const slice = slice_of(letters_of(quantity), part.shape, at);
  if (run === of_run) return cut(of_run, quantity, part, kind, slice);
  const which = run === "this" ? run : [run, at.beside ?? state.beside];
  return once([which, name, kind, part.layer, slice.offset].join(" "), () =>
    run === "difference" ? difference_of(name, kind, at) : cut(of_run, quantity, part, kind, slice));
}

// Returns the title, colours and marks of a quantity's numbers or of their gradient.
function looks_of(quantity, kind) {
  const { name, marks, scale } = quantity, looks = { name, kind, quantity };
  return kind === "value" ? { ...looks, title: name, scale, marks, tells: quantity }
    : { ...looks, title: `dLoss/d${name}`, scale: "signed", marks: [], note: gradient_words };
}

function cut(run, quantity, part, kind, slice) {
  const end = slice.offset + slice.rows * slice.columns;
  const causes = decode(part, "causes", 8)?.subarray(slice.offset, end) ?? null;
  return sheet({ ...slice, ...looks_of(quantity, kind), causes, run, hidden: hidden_of(run, causes, slice),
    cells: decode(part, kind).subarray(slice.offset, end),
    shared: () => run === data || besides.includes(run) ? shared_extremes(quantity.name, kind, ["this", "beside"])
      : (run.spans ??= {})[`${quantity.name} ${kind}`] ??= span_in([run], quantity.name, kind) });
}

const gradient_words = "how the loss changes as this number grows; colours are logarithmic over four decades";

function difference_of(name, kind, at) {
  const one = sheet_of(name, kind, at, "this"), other = sheet_of(name, kind, at, "beside");
  if (!other || one.rows !== other.rows || one.columns !== other.columns) return null;
  const hidden = one.hidden && one.hidden.map((here, cell) => here | (other.hidden?.[cell] ?? 0));
  return sheet({
    ...one, title: `${one.title}: ${difference_words(at)}`, scale: "diverging", marks: [], hidden,
    cells: Float64Array.from(one.cells, (value, cell) => value - other.cells[cell]),
    shared: () => shared_extremes(name, kind, ["difference"]),
  });
}

export const difference_words = (at) => `this \u2212 ${run_named("beside", at).label}`;

// Extremes over every layer, head, channel and run: equal colours are equal numbers.
function shared_extremes(name, kind, of_runs) {
  return once(["extremes", name, kind, of_runs].join(" "), () => span_in(of_runs, name, kind));
}
const span_in = (of_runs, name, kind) =>
  span_of(of_runs.flatMap((run) => all_sheets(name, kind, run)).map(({ extremes }) => extremes));
const span_of = (ends) => [Math.min(...ends.map(([low]) => low)), Math.max(...ends.map(([, high]) => high))];

// Returns every slice of a quantity with its place.
export function places_of(name, run = "this", at = state) {
  const quantity = run_named(run, at).all.get(name);
  return (quantity?.layers ?? []).flatMap(({ layer, shape }) => {
    const leading = letters_of(quantity).slice(0, -2), count = (axis) => shape[leading.indexOf(axis)] ?? 1;
    return counted(count("h")).flatMap((head) =>
      counted(count("c")).map((c) => ({ layer, c, ...kept_along("h", count("h"), head) })));
  });
}

function all_sheets(name, kind, run) {
  const at_all = run !== "beside" && run !== "difference" ? [{}] : counted(besides.length).map((beside) => ({ beside }));
  return at_all.flatMap((at) =>
    places_of(name, run, at).map((place) => sheet_of(name, kind, { ...place, ...at }, run)).filter(Boolean));
}

// "signed": gradients span so many decades that a linear scale would show only the largest.
export const two_sided = (scale) => scale === "diverging" || scale === "signed";

// Returns the ends of the colours: of all sheets, or of this sheet. Zero is in the middle, or at the low end.
export function range_of(sheet, fit) {
  if (!fit && sheet.scale === "unit") return [0, 1];
  const [low, high] = fit ? sheet.extremes : sheet.shared(), reach = Math.max(Math.abs(low), Math.abs(high));
  if (two_sided(sheet.scale)) return [-reach, reach];
  return fit ? [low, high] : [Math.min(0, low), Math.max(0, high)];
}

export const hidden_at = (sheet, row, column) => Boolean(sheet.hidden?.[row * sheet.columns + column]);
export const value_at = (sheet, row, column) =>
  hidden_at(sheet, row, column) ? null : sheet.cells[row * sheet.columns + column];
export const is_row = (sheet) => sheet.row_axis === "";

// ---- Tokens
const unseen = /[\0-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
function picture_of(letter) {
  const code = letter.charCodeAt(0), known = { "\n": "\u21b5", "\t": "\u21e5", "\x7f": "\u2421" }[letter];
  return known ?? (code < 32 ? String.fromCharCode(0x2400 + code) : `<${code.toString(16).padStart(4, "0")}>`);
}

// Makes white space, control characters and marks without a letter visible and inactive.
export function visible(token) {
  if (token === "") return "\u2205";
  const seen = token.replace(/ /g, "\u2423").replace(unseen, picture_of);
  return /^[\p{M}\u200c\u200d]/u.test(seen) ? "\u25cc" + seen : seen;
}

export const token_at = (index) => tokens[index] ?? "(none)";
export const labels_of = (axis, run = data) => ["i", "j", "t"].includes(axis) ? run.words : null;
export const short = (text) => [...text].length > 10 ? [...text].slice(0, 9).join("") + "\u2026" : text;
export const longest = (labels) => labels ? Math.max(...labels.map((label) => [...short(label)].length)) : 0;

// ---- Shows the answer to "inspect"
const replace = (list, ...now) => list.splice(0, list.length, ...now);
export function look_at({ page, numbers: block, besides: others = [] }) {
  forget();
  for (const key of Object.keys(data)) delete data[key];
  Object.assign(data, readable(page));
  numbers = block;
  replace(besides, ...others.map(readable));
  replace(tokens, ...data.words);
  replace(quantities, ...data.all.values());
  replace(measured, ...quantities.filter((quantity) => !quantity.parameter));
  start.i = tokens.length - 1;
}
if (source.has_engine) {  // no run yet, but all layers and heads that an address may name
  look_at({ page: { layers: 64, heads: 64, key_heads: 64, tokens: [], targets: [], predictions: [], quantities: [], parameters: [], causes: [],
    shares: [], schemes: [] } });
} else {
  const answer = source.ask({ ask: "inspect" });
  answer.catch(({ message }) => document.getElementById("look").textContent = `Nothing can be shown: ${message}. The ` +
    "maps' numbers are in the tables below.");
  look_at(await answer);
  state.i = start.i;
}
