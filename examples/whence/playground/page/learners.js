// The models: the options of each, its training so far, the edits in force, and the last look at it.
import { clamped } from "./elements.js";
import { state } from "./state.js";
import { source } from "./source.js";
import { data, part_of, run_of, sheet_of } from "./data.js";

export const learners = [];
export const sizes = { length: 32, layers: 2, heads: 2, dim: 32, seed: 0, rate: 0.001 };
// Heads have an even number of channels, as RoPE rotates pairs.
export const dim_for = (heads, dim = sizes.dim) => Math.ceil(dim / (2 * heads)) * 2 * heads;
export const selected_learner = () => learners[clamped(state.learner, 0, learners.length - 1)];
export const when_of = ({ label, step }) => label ?? `step ${step}`;

// ---- Redraws at the screen's next picture, once for any number of requests
export const bench = { said: "", playing: false };  // the status line; true while steps are taken
export const drawn = [];
let planned = false;
export function redraw() {
  if (planned) return;
  planned = true;
  requestAnimationFrame(() => {
    planned = false;
    for (const draw of drawn) draw();
  });
}
export function say(sentence) {
  bench.said = sentence;
  redraw();
}

// ---- Draws new weights, or with `opens` takes those of a run, which learns no more. If the engine refuses, nothing changes.
let births = 0;
export async function begin(index, { opens, ...options }) {
  const question = opens ?? { ask: "begin", ...sizes, ...options };
  const begun = await source.ask({ ...question, model: index });
  const { scheme, parameters, layers, heads, label, title, asks, steps = 0, tokens_per_step } = begun;
  learners[index] = {
    index, options: opens ? { opens, scheme, layers, heads } : { ...sizes, ...options }, steps, parameters, label,
    about: asks && `${title}. ${asks} `, tokens: tokens_per_step, born: ++births,
    step: 0, losses: [], errors: null, slice: 1, speed: 0, problem: "",
    edits: [], outcomes: [], edit_problem: "", look: null, plain: null, posted: "",
  };
  for (const key of ["layers", "heads"]) data[key] = Math.max(...learners.map(({ options }) => options[key]));
  if (!opens) data.key_heads = data.heads;
  redraw();
}

// Adapts the steps so that one question takes about a tenth of a second.
export async function train(learner, steps) {
  const { step, losses, milliseconds } = await source.ask({ ask: "train", model: learner.index, steps });
  learner.step = step;
  learner.losses.push(...losses);
  learner.slice = clamped(Math.round(steps * 100 / Math.max(1, milliseconds)), 1, 2 * steps);
  const now = losses.length * learner.tokens / (milliseconds / 1000);
  learner.speed = learner.speed ? 0.9 * learner.speed + 0.1 * now : now;
}

export async function test(learner) {
  const { sets, percent } = await source.ask({ ask: "errors", model: learner.index, sequences: 64 });
  learner.errors = { when: when_of(learner), sets, percent };
}

// ---- Looks
// A look is kept until something changes; with `last` it is also the look about which the engine answers questions.
export const key_of = (learner, edits = learner.edits) =>
  JSON.stringify([learner.index, learner.born, learner.step, state.sample, edits]);
export const is_current = (learner) => learner.look?.key === key_of(learner);
// Returns the pass without the edits, for comparison, if some are in force.
export const unedited = (learner) => learner.edits.length && is_current(learner) ? learner.plain : null;
export async function look(learner, { edits = learner.edits, last = false } = {}) {
  const key = key_of(learner, edits), known = [learner.look, learner.plain].find((each) => each?.key === key);
  if (known && (!last || learner.posted === key)) return keep(learner, known);
  learner.posted = key;
  const question = { ask: "look", model: learner.index, sample: state.sample, edits };
  const { page, numbers, ...losses } = await source.ask(question).catch((problem) => {
    learner.posted = "";
    throw problem;
  });
  return keep(learner, { ...losses, run: run_of(page, numbers), key });
}

// Asks about a look. Questions are posted with it at once, so that no other look comes between.
export async function ask_about(learner, questions) {
  const asked = [look(learner, { last: true }),
    ...questions.map((question) => source.ask({ model: learner.index, ...question }))];
  return (await Promise.all(asked)).slice(1);
}

function keep(learner, seen) {
  if (seen.key === key_of(learner, [])) learner.plain = seen;
  if (seen.key === key_of(learner)) learner.look = seen;
  redraw();
  return seen;
}

// Looks at all models as they are now. If the engine refuses a sample or an edit, the page says so and goes on.
export async function look_at_all() {
  for (const learner of [...learners]) {
    if (!is_current(learner)) await look(learner).catch((problem) => say(problem.message));
  }
}

// ---- Contents of a look: the layer that the reader chose, or the last that a quantity has
export function layer_of(quantity) {
  return part_of(quantity, state.layer) ? state.layer : quantity.layers.at(-1).layer;
}
export function sheet_in({ run }, name, kind = "value") {
  const quantity = run.all.get(name);
  return quantity ? sheet_of(name, kind, { ...state, layer: layer_of(quantity) }, run) : null;
}

// Quantities of pairs: the attention pattern, up to four of the scheme's own (or the logits if it has none), and the
// selected quantity.
export const of_pairs = ({ run }) => run.quantities.filter(({ axes }) => /^\w i j$/.test(axes));
export function shown_quantities(seen) {
  const all = of_pairs(seen), own = all.filter(({ scheme }) => scheme).slice(0, 4);
  const more = ["pattern", state.quantity, own.length ? "" : "logits"];
  return all.filter((each) => own.includes(each) || more.includes(each.name))
    .sort((one, other) => Number(other.name === "pattern") - Number(one.name === "pattern"));
}

// Selects a first pair: the last token with a question, and the one before. Places out of reach move to the edge.
export function settle_pair() {
  const seen = selected_learner()?.look;
  if (!seen) return;
  const { targets, words } = seen.run, last = words.length - 1;
  if (state.i < 0) state.i = targets.findLastIndex((target) => target !== null);
  if (state.i < 0) state.i = last;
  if (state.j < 0) state.j = Math.max(0, state.i - 1);
  state.i = Math.min(state.i, last);
  state.j = Math.min(state.j, last);
  if (!of_pairs(seen).some(({ name }) => name === state.quantity)) state.quantity = "pattern";
}
export const forget_pair = () => Object.assign(state, { i: -1, j: -1 });
