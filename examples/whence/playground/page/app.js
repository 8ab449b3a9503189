// View: the playground, models side by side; the start of a page with an engine.
import { button, counted, dress, make, note } from "./elements.js";
import { followers, redrawn, start, state } from "./state.js";
import { embedded_run, source, start_engine } from "./source.js";
import { data, look_at } from "./data.js";
import { add_controls, missing, offered, read_address, settle_views, stage, update, views, write_address } from "./frame.js";
import { columns, show_cursors } from "./columns.js";
import {
  ask_about, begin, bench, dim_for, drawn, forget_pair, key_of, learners, look, look_at_all, redraw, say, selected_learner,
  sizes, test
} from "./learners.js";
import { edits_panel, outcome_words, set_edits, weights_panel } from "./moves.js";
import { lesson_of } from "./lessons.js";
import { read_link } from "./link.js";
import { causes_panel, pair_words, selection } from "./selection.js";
import { lessons_panel, open_lesson, told } from "./teaching.js";
import { pause, run, step_once } from "./training.js";

const first = embedded_run ? [{ opens: embedded_run.question }]
  : ["cope", "rope", "absolute"].map((scheme) => ({ scheme }));

// ---- Training
async function toggle() {
  if (!bench.playing) return run();
  await pause();
  await look_at_all();
}
const play = button("Play", "play", toggle, { class: "play" });
const step = button("Step", "step", () => step_once());
const again = button("Start again", "again", () => begin_all({}));

async function begin_all(change) {
  await pause();
  size_problem.textContent = "";
  for (const { index, options } of [...learners]) {
    const dim = change.heads ? dim_for(change.heads, options.dim) : options.dim;
    try {
      await begin(index, { ...options, ...change, dim });
    } catch (problem) {
      size_problem.textContent = `Model ${index + 1}: ${problem.message}`;
    }
  }
  say("New weights, at step 0.");
  update(Object.keys(change).length ? { lesson: "" } : {});
  await look_at_all();
}

// ---- Controls
const option = (value) => make("option", { value }, value);
const labelled = ([words, input]) => make("label", {}, words, dress(input, { "data-focus": words }));
const size_inputs = {
  seed: make("input", { type: "number", min: 0, max: 2147483647, step: 1 }),
  length: make("select", {}, [16, 32, 64].map(option)),
  layers: make("select", {}, [1, 2, 3].map(option)),
  heads: make("select", {}, [1, 2, 3, 4].map(option)),
  rate: make("select", {}, [0.0003, 0.001, 0.003, 0.01].map(option)),
};
for (const [key, input] of Object.entries(size_inputs)) {
  input.addEventListener("change", () => begin_all({ [key]: Number(input.value) }));
}
add_controls({
  learner: { text: "model", options: () => learners.map(({ index, options }) => [index, `${index + 1} ${options.scheme}`]) },
  sample: { text: "sequence", most: 999, then: () => {
    forget_pair();
    if (!bench.playing) setTimeout(look_at_all);
    return {};
  } },
});
const size_problem = make("p", { class: "problem", role: "alert" });
const status = make("p", { class: "status", role: "status", "aria-live": "polite" });
const revive = button("Start again", "revive", () => restart(), { hidden: true });
const copy = button("Copy link", "link", async () => {
  write_address();
  const copied = () => say("The link is copied: it opens the page as it now is.");
  await navigator.clipboard?.writeText(location.href).then(copied, () => say("The link is in the address bar."));
});

function settle_sizes() {
  const options = learners[0]?.options ?? sizes;
  for (const [key, input] of Object.entries(size_inputs)) {
    if (document.activeElement === input) continue;
    const offers = !input.options || [...input.options].some(({ value }) => Number(value) === options[key]);
    if (!offers) input.append(option(options[key]));
    input.value = options[key];
  }
}

// ---- The view
const schemes = make("datalist", { id: "schemes" });
const task = make("p", { class: "task" }), from_engine = "All numbers come from the engine, which runs in this page.";
const fresh = ["Transformers learn ", make("b", {}, "flip-flop"), ": w writes a bit, i ignores one, r asks for the " +
  "last bit written. They differ in how they know positions. "];
const bar = [make("div", { class: "controls" },
  make("span", { class: "group", hidden: Boolean(embedded_run) }, play, step, again),
  make("span", { class: "group", hidden: Boolean(embedded_run) }, Object.entries(size_inputs).map(labelled)), copy),
size_problem, make("div", { class: "said" }, status, revive), told];
const bench_view = {
  key: "playground", title: "Playground", wants: () => source.has_engine, live: true, bar, without: ["learner", "run", "beside"],
  hint: embedded_run ? "Change a number: all that follows from it is computed again."
    : "Press Play, and look where the losses part; then change a learned number.",
  controls: () => ["layer", "head", "sample", "digits"],
  readout: pair_words,
  draw() {
    stage.append(task, embedded_run ? "" : lessons_panel, make("div", { class: "bench" }, columns,
      make("aside", {}, selection, weights_panel, edits_panel, causes_panel)), schemes,
    note("In a map a row is a query i, a column a key j; hatched pairs are masked. Outlines show what an edit has moved."));
    redrawn.push(redraw);
    followers.push(show_cursors);
    redraw();
  },
};
offered.unshift(bench_view);

let written = 0;
drawn.push(() => {
  task.replaceChildren(...(embedded_run ? [learners[0]?.about ?? ""] : fresh), from_engine);
  settle_sizes();
  play.textContent = bench.playing ? "Pause" : "Play";
  play.disabled = step.disabled = !learners.length || Boolean(source.dead);
  status.textContent = source.dead || bench.said;
  revive.hidden = !source.dead;
  clearTimeout(written);
  if (begun && !bench.playing) written = setTimeout(write_address, 400);
});

// ---- The other views show one whole model
let whole = "";
missing.of_view = (view) => {
  const learner = selected_learner();
  if (view.live || !learner) return null;
  return restoring ?? (whole === key_of(learner) ? null : pause().then(() => inspect(learner)));
};
async function inspect(learner) {
  say("Drawing the model.");
  try {
    const key = key_of(learner), [answer] = await ask_about(learner, [{ ask: "inspect" }]);
    look_at(answer);
    whole = key;
    say("");
  } catch (problem) {
    state.view = bench_view.key;
    say(problem.message);
  }
  settle_views();
}
source.turn = async (place) => (await ask_about(selected_learner(), [{ ask: "turn", ...place }]))[0];
source.put_edits = async (edits) => {
  const learner = selected_learner();
  await set_edits(learner, edits);
  return learner.edit_problem || outcome_words(learner);
};

// ---- The start, and a state from the address
let restoring = null;  // until restored
let begun = false;     // true if the models are those of the address
async function begin_with(models) {
  for (const index of counted(models.length)) {
    try {
      await begin(index, models[index]);
    } catch (problem) {
      if (source.dead || embedded_run) throw problem;
      await begin(index, first[index]);
      Object.assign(learners[index], { problem: `${problem.message} ${first[index].scheme} in its place.` });
    }
  }
  learners.length = models.length;
}

async function restore(link, begin_at_run) {
  const { view } = state, lesson = lesson_of(state.lesson)?.key ?? "";
  if (lesson !== state.lesson) link.ignored.push(`lesson=${state.lesson}`.slice(0, 60));
  state.lesson = lesson;
  begun = false;
  await pause();
  try {
    if (lesson && !embedded_run) await open_lesson(lesson, { move: false });
    else await begin_with(link.models.length && !embedded_run ? link.models : first);
    const goals = learners.map(({ index }) => link.steps[index] ?? link.steps.at(-1) ?? 0);
    if (goals.some((goal, index) => goal > learners[index].step)) await run(({ index }) => goals[index]);
    else await look_at_all();
    if (embedded_run) await test(learners[0]);
    for (const learner of learners) {
      const edits = link.edits.filter(({ index }) => index === learner.index).map(({ edit }) => edit);
      if (edits.length) await set_edits(learner, edits);
    }
    begun = true;
    if (selected_learner()?.look && !bench.playing) await inspect(selected_learner());
    if (embedded_run && begin_at_run) begin_at_run(), read_address(link.text);
  } catch (problem) { if (!source.dead) say(problem.message); }
  if (link.ignored.length) say(`These parts of the address were ignored: ${link.ignored.join(", ")}.`);
  const others = views.filter((each) => each !== bench_view);
  if (state.view !== view) return update();  // the reader has gone on
  update({ view: link.view ?? (embedded_run && others.length ? others[0] : bench_view).key });
}

async function restart() {
  start_engine();
  say("A new engine begins.");
  const models = learners.map(({ options }) => options);
  try {
    await know_engine();
    await begin_with(models.length ? models : first);
    say("New weights, at step 0.");
    await look_at_all();
  } catch (problem) { say(problem.message); }
}

async function know_engine() {
  const { schemes: all, palettes } = await source.ask({ ask: "schemes" });
  data.palettes = palettes;
  schemes.replaceChildren(...all.map(({ name, title }) => make("option", { value: name }, title)));
}

source.when_dead = () => {
  pause();
  redraw();
};
state.quantity = start.quantity = "gates";
forget_pair();
start_engine();
say("The engine is starting.");
let link = read_link();  // before the address becomes that of a page without models
source.begin = async (begin_at_run) => {
  link ??= read_link();
  const told = link;
  link = null;
  await know_engine().catch(() => {});
  await (restoring = restore(told, begin_at_run));
  restoring = null;
  if (bench.said === "The engine is starting.") say("");
};
