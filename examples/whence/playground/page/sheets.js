// What a look holds: quantities and parameters, cut into sheets of rows and columns.
import { clamped, unique } from "./elements.js";
import { state } from "./state.js";

const array_types = { 8: Uint8Array, 32: Float32Array, 64: Float64Array };
export function numbers_of(look, part, field) {
  const place = part[field], Type = array_types[field === "causes" ? 8 : part.bits];
  return place && new Type(look.numbers, place.at, place.bytes / Type.BYTES_PER_ELEMENT);
}

// Quantities of pairs: the attention pattern, up to four of the scheme's own or the logits where it has none, and the
// selected one.
export const of_pairs = (look) => look.page.quantities.filter(({ axes }) => /^\w i j$/.test(axes));
export function shown_quantities(look) {
  const all = of_pairs(look), own = all.filter(({ scheme }) => scheme).slice(0, 4);
  const more = ["pattern", state.quantity, own.length ? "" : "logits"];
  const chosen = all.filter(({ name }) => more.includes(name));
  return all.filter((each) => own.includes(each) || chosen.includes(each))
    .sort((one, other) => Number(other.name === "pattern") - Number(one.name === "pattern"));
}

// What else there is: the scheme's parameters, equal ones of all layers as one, and the vectors of the pass.
const without_block = ({ path }) => path.replace(/^blocks\.\d+\./, "");
export function vectors_of({ page: { parameters, quantities } }) {
  return [...unique(parameters.map(without_block)).map((probe) => ({ probe, scale: "diverging",
    name: probe.replace("attention.position.", ""),
    layers: parameters.filter((each) => without_block(each) === probe) })),
  ...quantities.filter(({ axes }) => !/^\w i j$/.test(axes))];
}

// Where axes stand that are counted through, the last the fastest, as the engine says it: ["0=5", "1=2"].
export const words_at = (axes, count) => axes.flatMap(({ word, extent }, k) =>
  `${word}=${Math.floor(count / axes.slice(k + 1).reduce((size, each) => size * each.extent, 1)) % extent}`);

// The layer that the reader chose, or the last that this quantity has, as rows and columns: the last two axes longer
// than 1. Those before them stand at the chosen head or query; a parameter's, which have numbers for names, where `slice`
// has counted to. `key`: the word of the state that says which row or column is selected.
export function sheet_of(look, quantity) {
  const part = quantity.layers.find(({ layer }) => layer === state.layer) ?? quantity.layers.at(-1);
  const names = quantity.axes?.replace("h", "head").split(" ") ?? Object.keys(part.shape);
  const axes = part.shape.map((extent, k) => ({ word: names[k], extent })).filter(({ extent }) => extent > 1);
  // Heads of queries share those of keys.
  const shared = (extent) => extent === look.key_heads ? look.heads / extent : 1;
  const head_in = (extent) => clamped(Math.floor(state.head / shared(extent)), 0, extent - 1);
  const axis_of = (role, { word, extent } = { extent: 1 }) => ["i", "j", "head"].includes(word)
    ? { word, extent, key: word, at: word === "head" ? head_in(extent) : state[word] }
    : { word, extent, key: role, at: clamped(state[role], 0, extent - 1) };
  const row = axis_of("row", axes.at(-2)), column = axis_of("column", axes.at(-1)), leading = axes.slice(0, -2);
  const slices = leading.reduce((count, { extent }) => count * extent, 1), size = row.extent * column.extent;
  const index = !quantity.axes ? clamped(state.slice, 0, slices - 1) : leading.reduce((count, { word, extent }) =>
    count * extent + (word === "i" ? clamped(state.i, 0, extent - 1) : head_in(extent)), 0);
  const cut = (field) => numbers_of(look, part, field)?.subarray(index * size, (index + 1) * size);
  return { quantity, row, column, leading, slices, index, layer: part.layer, cell: row.at * column.extent + column.at,
    value: cut("value"), gradient: cut("gradient"), causes: cut("causes"),
    of: part.path ?? `${quantity.name} layer=${part.layer}`,
    words: { leading: words_at(leading, index), row: words_at(axes.slice(-2, -1), row.at),
      column: words_at(axes.slice(-1), column.at) } };
}
// The selected number in the engine's words; all that it names where an axis is not kept.
export const place_text = ({ of, words }, kept = ["leading", "row", "column"]) =>
  [of, ...kept.flatMap((each) => words[each])].join(" ");

export function sheet_named(look, name) {
  const quantity = look?.page.quantities.find((each) => each.name === name);
  return quantity && /^\w i j$/.test(quantity.axes) ? sheet_of(look, quantity) : null;
}
export const kind_at = (look, sheet, cell = sheet.cell) => look.page.causes[sheet.causes?.[cell]]?.kind ?? "";
