// The models: what each was begun with, how far it has learned, the edits in force, and what was last seen of it.
import { clamped } from "./elements.js";
import { ask } from "./engine.js";
import { redraw, say, state } from "./state.js";

export const learners = [];
export const sizes = { length: 32, layers: 2, heads: 2, dim: 32, seed: 0, rate: 0.001 };
// A head has an even number of channels, as RoPE turns them in twos.
export const dim_for = (heads, dim = sizes.dim) => Math.ceil(dim / (2 * heads)) * 2 * heads;

// New weights, or with `opens` those of a run, which learns no more. Where the engine refuses, all stays as it was.
let births = 0;
export async function begin(index, { opens, ...options }) {
  const question = opens ?? { ask: "begin", ...sizes, ...options }, begun = await ask({ ...question, model: index });
  const { scheme, parameters, layers, heads, label, title, asks, steps = 0, tokens_per_step } = begun;
  learners[index] = {
    index, options: opens ? { opens, scheme, layers, heads } : { ...sizes, ...options }, steps, parameters, label,
    about: asks && `${title}. ${asks} `, tokens: tokens_per_step, born: ++births,
    step: 0, losses: [], errors: null, slice: 1, speed: 0, problem: "",
    edits: [], outcomes: [], edit_problem: "", look: null, plain: null, posted: "",
  };
  redraw();
}

export const when_of = ({ label, step }) => label ?? `step ${step}`;
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
  const { sets, percent } = await ask({ ask: "errors", model: learner.index, sequences: 64 });
  learner.errors = { when: when_of(learner), sets, percent };
}

// ---- Looks
// What was seen is kept until something changes; with `last` it is also the look that the engine answers questions about.
const key_of = (learner, edits) => JSON.stringify([learner.born, learner.step, state.sample, edits]);
export const is_current = (learner) => learner.look?.key === key_of(learner, learner.edits);
// What is shown is compared with: the pass without the edits, where some are in force.
export const unedited = (learner) => learner.edits.length && is_current(learner) ? learner.plain : null;
export async function look(learner, { edits = learner.edits, last = false } = {}) {
  const key = key_of(learner, edits), known = [learner.look, learner.plain].find((each) => each?.key === key);
  if (known && (!last || learner.posted === key)) return keep(learner, known);
  learner.posted = key;
  const question = { ask: "look", model: learner.index, sample: state.sample, edits };
  const answer = await ask(question).catch((problem) => {
    learner.posted = "";
    throw problem;
  });
  return keep(learner, { ...answer, key });
}

// Questions about a look. They are posted with it at once, so that no other look comes between.
export async function ask_about(learner, questions) {
  const asked = [look(learner, { last: true }),
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
