// The lessons of the playground: their own models, trained while the reader looks, a place to look at, an edit to try.
import { button, dress, make } from "./elements.js";
import { state } from "./state.js";
import { update } from "./frame.js";
import { lesson_of, lessons } from "./lessons.js";
import { begin, bench, drawn, forget_pair, learners, look_at_all, say } from "./learners.js";
import { set_edits } from "./moves.js";
import { pause, run, still } from "./training.js";

// ---- Opening one
let opened = Promise.resolve();
export const open_lesson = (key, options) => opened = open(key, options);
async function open(key, { move = true } = {}) {
  const lesson = lesson_of(key), { model = 0, part = "value", vector = "", column, ...show } = lesson.show;
  await pause();
  say("");
  update({ lesson: key });
  try {
    for (const [index, options] of lesson.models.entries()) await begin(index, options);
    learners.length = lesson.models.length;
    forget_pair();
    update({ sample: lesson.sample ?? 0, layer: 0, head: 0, ...show, learner: model, half: part, vector,
      ...(column === undefined ? {} : { k: column }) });
    await look_at_all();
    if (!await run(() => lesson.steps)) return false;
  } catch (problem) { return say(problem.message); }
  if (move) show_pair();
  return true;
}

// Scrolls to the picture that the lesson is about.
function show_pair() {
  requestAnimationFrame(() => requestAnimationFrame(() =>
    document.querySelector(`[data-focus="${CSS.escape(`${state.learner} ${state.quantity} ${state.half}`)}"]`)
      ?.scrollIntoView({ block: "nearest", behavior: still.matches ? "auto" : "smooth" })));
}

async function try_edits(lesson) {
  await opened;  // opening drops edits
  const edited = (lesson.edited_models ?? [lesson.show.model]).map((index) => learners[index]);
  await pause();
  if (edited.some((learner) => learner.step < lesson.steps) && !await run(() => lesson.steps)) return;
  for (const learner of edited) await set_edits(learner, lesson.edits);
  say("The lesson's edits are in force; undo them in the list of edits.");
}

// ---- The panel
const buttons = make("div", { class: "lesson-list" }, lessons.map(({ key, title }, k) =>
  button(`${k + 1}. ${title}`, `lesson ${key}`, () => open_lesson(key))));
const title = make("h2"), words = make("p", { class: "words" });
const progress = make("progress", { "aria-label": "learning" });
const learning = make("span"), attempt = button("", "try", () => try_edits(lesson_of(state.lesson)));
const cancel = button("Stop here", "cancel", async () => {
  await pause();
  await look_at_all();
});
const leave = button("Leave", "leave", () => update({ lesson: "" }));
const waits = make("p", { class: "controls" }, progress, learning, cancel);
export const lessons_panel = make("nav", { "aria-label": "lessons" }, buttons);
export const told = make("section", { class: "lesson", "aria-label": "lesson" }, title, words, waits,
  make("p", { class: "acts" }, attempt, leave));

drawn.push(() => {
  const lesson = lesson_of(state.lesson);
  [...buttons.children].forEach((each, k) => dress(each, { "aria-pressed": String(lessons[k].key === state.lesson) }));
  told.hidden = !lesson;
  if (!lesson) return;
  const step = Math.min(...learners.map((each) => each.step));
  title.textContent = lesson.title;
  words.textContent = lesson.says.join(" ");
  waits.hidden = !bench.playing || step >= lesson.steps;
  Object.assign(progress, { max: lesson.steps || 1, value: step });
  learning.textContent = `learning, step ${step} of ${lesson.steps}`;
  attempt.textContent = lesson.try;
});
