// Lessons: states of the page with two sentences each, from lessons.json; tested against the engine's numbers.
import { button, dress, make } from "./elements.js";
import { begin, learners, look_at_all } from "./learners.js";
import { set_edits } from "./edits.js";
import { choose, drawn, say, start, state, still } from "./state.js";
import { pause, run } from "./training.js";

export const lessons = JSON.parse(document.getElementById("lessons")?.textContent || "[]");
export const lesson_of = (key) => lessons.find((each) => each.key === key);

// ---- Opening one
let opened = Promise.resolve();
export const open_lesson = (key, options) => opened = open(key, options);
async function open(key, { move = true } = {}) {
  const lesson = lesson_of(key), { layer = 0, head = 0, ...show } = lesson.show ?? {};
  await pause();
  choose({ lesson: key, said: "" });
  try {
    for (const [index, options] of lesson.models.entries()) await begin(index, options);
    learners.length = lesson.models.length;
    choose({ sample: lesson.sample ?? 0, layer, head, i: start.i, j: start.j, part: "value", model: 0, ...show });
    await look_at_all();
    if (!await run(() => lesson.steps)) return false;
  } catch (problem) { return say(problem.message); }
  if (move) show_pair();
  return true;
}

// To the picture that the lesson is about, where it is out of sight.
function show_pair() {
  requestAnimationFrame(() => requestAnimationFrame(() =>
    document.querySelector(`[data-focus="${CSS.escape(`${state.model} ${state.quantity} ${state.part}`)}"]`)
      ?.scrollIntoView({ block: "nearest", behavior: still.matches ? "auto" : "smooth" })));
}

async function try_edits(lesson) {
  await opened;  // what opens drops edits
  const edited = (lesson.edited_models ?? [lesson.show.model]).map((index) => learners[index]);
  await pause();
  if (edited.some((learner) => learner.step < lesson.steps) && !await run(() => lesson.steps)) return;
  for (const learner of edited) await set_edits(learner, lesson.edits);
  say("The lesson's edits are in force; undo them in the list of edits.");
}

// ---- The panel
const buttons = make("div", { class: "lesson-list" }, lessons.map(({ key, title }, k) =>
  button(`${k + 1}. ${title}`, `lesson ${key}`, () => open_lesson(key))));
const title = make("h3"), words = make("p", { class: "words" });
const progress = make("progress", { "aria-label": "learning" });
const learning = make("span"), attempt = button("", "try", () => try_edits(lesson_of(state.lesson)));
const cancel = button("Stop here", "cancel", async () => {
  await pause();
  await look_at_all();
});
const leave = button("Leave", "leave", () => choose({ lesson: "" }));
const waits = make("p", { class: "controls" }, progress, learning, cancel);
const acts = make("p", { class: "acts" }, attempt, leave);
export const lessons_panel = make("nav", { "aria-label": "lessons" }, buttons);
export const told = make("section", { class: "lesson", "aria-label": "lesson" }, title, words, waits, acts);

drawn.push(() => {
  const lesson = lesson_of(state.lesson);
  [...buttons.children].forEach((each, k) => dress(each, { "aria-pressed": String(lessons[k].key === state.lesson) }));
  told.hidden = !lesson;
  if (!lesson) return;
  const step = Math.min(...learners.map((each) => each.step));
  title.textContent = lesson.title;
  words.textContent = lesson.says.join(" ");
  waits.hidden = !state.playing || step >= lesson.steps;
  Object.assign(progress, { max: lesson.steps || 1, value: step });
  learning.textContent = `learning, step ${step} of ${lesson.steps}`;
  attempt.hidden = !lesson.edits?.length;
  attempt.textContent = lesson.try ?? "Try it";
});
