// One model's inspector: the page of `look` in a frame of its own, whose loupe asks this page's engine.
import { button, make } from "./elements.js";
import { with_edit } from "./edits.js";
import { ask_about, look } from "./learners.js";
import { say } from "./state.js";
import { pause } from "./training.js";

export async function look_into(learner) {
  await pause();
  say("Drawing the inspector.");
  try {
    const [{ html }] = await ask_about(learner, [{ ask: "inspect" }]);
    show_inside(learner, html);
    say("");
  } catch (problem) { say(problem.message); }
}

// The frame's name tells the page in it that an engine is there (look/viewer/engine.js). Its origin is none, so that it
// reaches no more than it is answered.
function show_inside(learner, html) {
  const title = `The inspector: model ${learner.index + 1}, ${learner.options.scheme}`, before = learner.look.loss;
  const frame =
    make("iframe", { title, name: "engine", srcdoc: html, sandbox: "allow-scripts allow-downloads" });
  const answers = ({ source, data, ports }) =>
    source === frame.contentWindow && answer(learner, data.edits, before).then((said) => ports[0].postMessage(said));
  const dialog = make("dialog", { class: "inside", "aria-label": title, onclose: () => {
    removeEventListener("message", answers);
    dialog.remove();
  } }, make("header", {}, make("b", {}, title), button("close", null, () => dialog.close())), frame);
  addEventListener("message", answers);
  document.body.append(dialog);
  dialog.showModal();
}

// The pass with these edits beside those in force.
async function answer(learner, edits, before) {
  try {
    const { page, numbers, loss } = await look(learner, { edits: edits.reduce(with_edit, learner.edits) });
    return { page, numbers, loss, before };
  } catch (problem) { return { problem: problem.message }; }
}
