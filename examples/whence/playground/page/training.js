// Takes steps of all models, a slice of each in alternation, and shows the models in between.
import { source } from "./source.js";
import { bench, learners, look, look_at_all, redraw, say, test, train } from "./learners.js";

export const still = matchMedia("(prefers-reduced-motion: reduce)");
let turn = 0, loop = Promise.resolve();  // a run ends when another begins

export function pause() {
  ++turn;
  bench.playing = false;
  return loop;
}

// Trains each model to the step that `until` returns for it; false if somebody pauses before.
export async function run(until = (learner) => learner.steps) {
  await pause();
  const mine = ++turn;
  bench.playing = true;
  drop_edits();
  redraw();
  loop = steps_of(mine, until).catch((problem) => source.dead || say(problem.message));
  await loop;
  if (mine !== turn) return false;
  bench.playing = false;
  await look_at_all();
  redraw();
  return mine === turn && !source.dead;
}

// The model that is behind goes first, so that all are compared at the same step.
async function steps_of(mine, until) {
  const goal = (learner) => Math.min(until(learner), learner.steps);
  const behind = () => learners.filter((each) => each.step < goal(each)).sort((one, other) => one.step - other.step)[0];
  for (let next = behind(); next && mine === turn; next = behind()) {
    const slice = Math.min(next.slice, goal(next) - next.step, every - next.step % every);
    await train(next, slice);
    if (mine === turn && next.step % every === 0) await test(next);
    if (mine === turn) await refresh();
    if (!still.matches || performance.now() - looked > 2000) redraw();
  }
}
const every = 50;

// Looks at one model at a time, and so rarely that looking takes a fifth of the time at most.
let looked = 0, cost = 0, whose = 0;
async function refresh() {
  const now = performance.now();
  if (now - looked < Math.max(still.matches ? 2000 : 400, 4 * cost)) return;
  await look(learners[whose++ % learners.length]);
  looked = performance.now();
  cost = looked - now;
}

export async function step_once() {
  await pause();
  const goals = new Map(learners.map((each) => [each, each.step + 1]));
  return run((learner) => goals.get(learner) ?? 0);
}

function drop_edits() {
  const edited = learners.filter(({ edits }) => edits.length);
  if (edited.length) say("The edits were dropped, as training went on.");
  for (const learner of edited) Object.assign(learner, { edits: [], outcomes: [], edit_problem: "" });
}
