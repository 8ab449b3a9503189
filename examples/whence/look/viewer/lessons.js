// View of a page with an engine: lessons of the run's scheme, each at a place of the pass that is shown. A lesson's claims
// hold for its own models, which the playground trains; this view has the effect of the lesson's edits.
import { button, clamped, make, note } from "./elements.js";
import { data, tokens } from "./data.js";
import { embedded_run, json_in, source } from "./source.js";
import { stage, update } from "./frame.js";

export const lessons = json_in("lessons") ?? [];
export const lesson_of = (key) => lessons.find((each) => each.key === key);

// ---- Lessons of a run: of the same scheme, with the options that the lesson names
const parts_of = (scheme) => {
  const [, name, options = ""] = /^(\w+)(?:\((.*)\))?$/.exec(scheme) ?? ["", scheme];
  return [name, options.split(/, */).filter(Boolean)];
};
function tells_of({ models: [{ scheme }] }, run) {
  const [name, options] = parts_of(scheme), [own, has] = parts_of(run.scheme ?? "");
  return name === own && options.every((option) => has.includes(option));
}
// A playground that begins models has all lessons itself.
const lessons_here = () => !source.put_edits || source.has_engine && !embedded_run ? [] : lessons.filter((lesson) => tells_of(lesson, data));

// Returns its place, or the nearest in this run.
function place_of_lesson({ show: { layer = 0, head = 0, i, j } }) {
  const last = tokens.length - 1;
  return { layer: clamped(layer, 0, data.layers - 1), head: clamped(head, 0, data.heads - 1), i: clamped(i, 0, last),
    j: clamped(j, 0, last) };
}

// ---- One lesson
const learned = ({ models: [{ scheme, ...sizes }], steps }) => `The lesson's model is ${scheme}, ` +
  (steps ? `trained on flip-flop for ${steps} steps` : "before its first step") +
  Object.entries(sizes).map(([name, value]) => `, ${name.replace("_", " ")} ${value}`).join("") +
  "; the playground trains it while you look.";

const outcome = { key: "", words: "" };  // the lesson whose edits are in force, and the engine's words on it
function try_it(lesson) {
  const put = (key, edits) => async () => {
    Object.assign(outcome, { key, words: await source.put_edits(edits).catch(({ message }) => message) });
    update({ lesson: key });
  };
  if (outcome.key !== lesson.key) return [button(lesson.try, `try ${lesson.key}`, put(lesson.key, lesson.edits))];
  return [make("p", { role: "status" }, outcome.words), button("undo", `undo ${lesson.key}`, put("", []))];
}

function draw_lesson(lesson, number) {
  const { show: { quantity }, title, says } = lesson;
  const go = button("show it", `show ${lesson.key}`, () => update({ view: "quantities", show: "all", quantity, part: "both",
    ...place_of_lesson(lesson), lesson: lesson.key }));
  stage.append(make("section", { class: "step", "aria-label": title }, make("div", {}, make("h2", {}, `${number}. ${title}`),
    says.map((words) => make("p", {}, words)), note(learned(lesson))),
  make("div", {}, make("p", {}, go), try_it(lesson))));
}

export const lessons_view = {
  key: "lessons", title: "Lessons", wants: () => lessons_here().length > 0,
  hint: "Each lesson looks at one place of this run and changes one thing.",
  controls: () => [],
  readout: () => [`${lessons_here().length} of ${lessons.length} lessons are on ${data.scheme}`],
  draw: () => lessons_here().forEach((lesson, k) => draw_lesson(lesson, k + 1)),
};
