// The models: what each was begun with, how far it has learned, the edits in force, and what was last seen of it.
import { clamped, unique } from "./elements.js";
import { ask } from "./engine.js";
import { redraw, say, state } from "./state.js";

export const learners = [];
export const sizes = { length: 32, layers: 2, heads: 2, dim: 32, seed: 0, rate: 0.001 };
// A head has an even number of channels, as RoPE turns them in twos.
export const dim_for = (heads, dim = sizes.dim) => Math.ceil(dim / (2 * heads)) * 2 * heads;

// New weights. Where the engine refuses, all stays as it was.
let births = 0;
export async function begin(index, options) {
  const full = { ...sizes, ...options }, begun = await ask({ ask: "begin", model: index, ...full });
  learners[index] = {
    index, options: full, steps: begun.steps, parameters: begun.parameters, tokens: begun.tokens_per_step,
    born: ++births,
    step: 0, losses: [], errors: null, slice: 1, speed: 0, problem: "",
    edits: [], outcomes: [], edit_problem: "", look: null, plain: null, posted: null,
  };
  redraw();
}

export const selected_learner = () => learners[clamped(state.model, 0, learners.length - 1)];

// ---- Training
// So many steps that one question takes about a tenth of a second.
export async function train(learner, steps) {
  const { step, losses, milliseconds } = await ask({ ask: "train", model: learner.index, steps });
  learner.step = step;
  learner.losses.push(...losses);
  learner.slice = clamped(Math.round(steps * 100 / Math.max(1, milliseconds)), 1, 2 * steps);
  const now = losses.length * learner.tokens / (milliseconds / 1000);
  learner.speed = learner.speed ? 0.9 * learner.speed + 0.1 * now : now;
}

export async function test(learner) {
  const { step, sets, percent } = await ask({ ask: "errors", model: learner.index, sequences: 64 });
  learner.errors = { step, sets, percent };
}

// ---- Looks
// "whole" is slower, and what an explanation needs. What was seen is kept until something changes; with `last` it is
// also the look that the engine answers questions about.
const key_of = (learner, edits) => JSON.stringify([learner.born, learner.step, state.sample, edits]);
export const is_current = (learner) => learner.look?.key === key_of(learner, learner.edits);
// What is shown is compared with: the pass without the edits, where some are in force.
export const unedited = (learner) => learner.edits.length && is_current(learner) ? learner.plain : null;
export async function look(learner, { whole = false, edits = learner.edits, last = false } = {}) {
  const key = key_of(learner, edits), fits = (each) => each?.key === key && (each.whole || !whole);
  const known = [learner.look, learner.plain].find(fits);
  if (known && (!last || fits(learner.posted))) return keep(learner, known);
  learner.posted = { key, whole };
  const question = { ask: "look", model: learner.index, sample: state.sample, whole, edits };
  const answer = await ask(question).catch((problem) => {
    learner.posted = null;
    throw problem;
  });
  return keep(learner, { ...answer, key, whole });
}

// Questions about a look. They are posted with it at once, so that no other look comes between.
export async function ask_about(learner, options, questions) {
  const asked = [look(learner, { ...options, last: true }),
    ...questions.map((question) => ask({ model: learner.index, ...question }))];
  return (await Promise.all(asked)).slice(1);
}

function keep(learner, seen) {
  if (seen.key === key_of(learner, [])) learner.plain = seen;
  if (seen.key === key_of(learner, learner.edits)) learner.look = seen;
  redraw();
  return seen;
}

// All models as they now are. A sample or an edit that the engine refuses is told, and the page goes on.
export async function look_at_all() {
  for (const learner of [...learners]) {
    if (!is_current(learner)) await look(learner).catch((problem) => say(problem.message));
  }
}

// ---- What a look holds
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
  const axis_of = (role, { word, extent } = { extent: 1 }) => ["i", "j", "head"].includes(word)
    ? { word, extent, key: word, at: state[word] }
    : { word, extent, key: role, at: clamped(state[role], 0, extent - 1) };
  const row = axis_of("row", axes.at(-2)), column = axis_of("column", axes.at(-1)), leading = axes.slice(0, -2);
  const slices = leading.reduce((count, { extent }) => count * extent, 1), size = row.extent * column.extent;
  const index = !quantity.axes ? clamped(state.slice, 0, slices - 1) : leading.reduce((count, { word, extent }) =>
    count * extent + clamped(word === "i" ? state.i : state.head, 0, extent - 1), 0);
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
