// The page: its controls, its beginning, and what the address and the keyboard do.
import { button, clamped, counted, dress, make, note } from "./elements.js";
import { keep_palettes, read_theme, system_dark } from "./colours.js";
import { columns } from "./columns.js";
import { edits_panel, set_edits } from "./edits.js";
import { ask, embedded_run, engine, start_engine } from "./engine.js";
import { begin, dim_for, learners, look_at_all, sizes, test } from "./learners.js";
import { lessons_panel, open_lesson, told } from "./lessons.js";
import { read_link, write_link } from "./link.js";
import { reasons_panel, selection } from "./selection.js";
import { choose, drawn, redraw, say, start, state } from "./state.js";
import { pause, run, step_once } from "./training.js";
import { weights_panel } from "./weights.js";

const first = embedded_run ? [{ opens: embedded_run.question }]
  : ["cope", "rope", "absolute"].map((scheme) => ({ scheme }));

// ---- Training
async function toggle() {
  if (!state.playing) return run();
  await pause();
  await look_at_all();
}
const play = button("Play", "play", toggle, { class: "play" });
const step = button("Step", "step", () => step_once());
const again = button("Start again", "again", () => begin_all({}));

// All models anew, with these sizes in place of theirs.
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
  if (Object.keys(change).length) choose({ lesson: "" });
  say("New weights, at step 0.");
  await look_at_all();
}

// ---- Controls
const option = (value) => make("option", { value }, value);
const labelled = (words, input) => make("label", {}, words, dress(input, { "data-focus": words }));
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
const looking = (change) => {
  choose(change);
  if (!state.playing) look_at_all();
};
const view_inputs = Object.fromEntries(["layer", "head"].map((key) =>
  [key, make("select", { onchange: ({ target }) => choose({ [key]: Number(target.value) }) })]));
view_inputs.sample = make("input", { type: "number", min: 0, max: 999, step: 1, onchange: ({ target }) =>
  looking({ sample: clamped(Math.round(Number(target.value)) || 0, 0, 999), i: start.i, j: start.j }) });
const size_problem = make("p", { class: "problem", role: "alert" });
const status = make("p", { class: "status", role: "status", "aria-live": "polite" });
const revive = button("Start again", "revive", () => restart(), { hidden: true });

function settle_controls() {
  const options = learners[0]?.options ?? sizes;
  for (const [key, input] of Object.entries(size_inputs)) {
    if (document.activeElement === input) continue;
    const offered = !input.options || [...input.options].some(({ value }) => Number(value) === options[key]);
    if (!offered) input.append(option(options[key]));
    input.value = options[key];
  }
  for (const [key, input] of Object.entries(view_inputs)) {
    const most = Math.max(1, ...learners.map((each) => each.options[`${key}s`] ?? 0));
    if (input.options && input.options.length !== most) input.replaceChildren(...counted(most).map(option));
    if (input.options) state[key] = clamped(state[key], 0, most - 1);
    if (document.activeElement !== input) input.value = state[key];
  }
}

// ---- The page
const themes = make("select", { onchange: ({ target }) => choose({ theme: target.value }) },
  ["auto", "light", "dark"].map(option));
const copy = button("Copy link", "link", async () => {
  write_link();
  const copied = () => say("The link is copied: it opens the page as it now is.");
  await navigator.clipboard?.writeText(location.href).then(copied, () => say("The link is in the address bar."));
});
const schemes = make("datalist", { id: "schemes" });

const task = make("p", { class: "task" }), from_engine = "All numbers come from the engine, which runs in this page.";
const fresh = ["Transformers learn ", make("b", {}, "flip-flop"), ": w writes a bit, i ignores one, r asks for the " +
  "last bit written. They differ in how they know positions. "];

const all_labelled = (inputs) => Object.entries(inputs).map(([key, input]) => labelled(key, input));
function build() {
  const bar = make("div", { class: "bar" },
    make("div", { class: "controls" },
      [[play, step, again], all_labelled(size_inputs)].map((group) =>
        make("span", { class: "group", hidden: Boolean(embedded_run) }, group)),
      make("span", { class: "group" }, "maps of ", all_labelled(view_inputs))),
    size_problem, make("div", { class: "said" }, status, revive), told);
  document.getElementById("theme").append(make("span", { class: "controls" }, copy, labelled("theme", themes)));
  document.getElementById("playground").append(task, lessons_panel, bar, make("main", {}, columns,
    make("aside", {}, selection, edits_panel, reasons_panel, weights_panel)), schemes,
    note("In a map a row is a query i, a column a key j; hatched pairs are masked. A click or the arrow keys select " +
      "a pair; outlined is what an edit has moved.", embedded_run ? "" : " Space plays and pauses."));
  // What else stays in sight stands below the bar.
  new ResizeObserver(() => document.documentElement.style.setProperty("--bar", `${bar.offsetHeight}px`)).observe(bar);
}

let written = 0;
drawn.push(() => {
  read_theme();
  themes.value = state.theme;
  task.replaceChildren(...(embedded_run ? [learners[0]?.about ?? ""] : fresh), from_engine);
  settle_controls();
  play.textContent = state.playing ? "Pause" : "Play";
  play.disabled = step.disabled = !learners.length || Boolean(engine.dead);
  status.textContent = engine.dead || state.said;
  revive.hidden = !engine.dead;
  clearTimeout(written);
  if (learners.length && !restoring) written = setTimeout(write_link, 400);
});

// ---- Beginning, and a state from the address
let restoring = false;
async function begin_with(models) {
  for (const index of counted(models.length)) {
    try {
      await begin(index, models[index]);
    } catch (problem) {
      if (engine.dead) throw problem;
      if (embedded_run) throw problem;
      await begin(index, first[index]);
      Object.assign(learners[index], { problem: `${problem.message} ${first[index].scheme} in its place.` });
    }
  }
  learners.length = models.length;
}

async function restore() {
  const link = read_link();
  restoring = true;
  await pause();
  try {
    Object.assign(state, start, link.state);
    if (link.state.lesson) await open_lesson(link.state.lesson, { move: false });
    else await begin_with(link.models.length && !embedded_run ? link.models : first);
    const goals = learners.map(({ index }) => link.steps[index] ?? link.steps.at(-1) ?? 0);
    Object.assign(state, link.state);
    if (goals.some((goal, index) => goal > learners[index].step)) await run(({ index }) => goals[index]);
    else await look_at_all();
    if (embedded_run) await test(learners[0]);
    for (const learner of learners) {
      const edits = link.edits.filter(({ index }) => index === learner.index).map(({ edit }) => edit);
      if (edits.length) await set_edits(learner, edits);
    }
  } catch (problem) { if (!engine.dead) say(problem.message); }
  restoring = false;
  if (link.ignored.length) say(`Of the address, this makes no sense and was ignored: ${link.ignored.join(", ")}.`);
  redraw();
}

// A new engine, and the models as they were begun.
async function restart() {
  start_engine();
  say("A new engine begins.");
  const models = learners.map(({ options }) => options);
  try {
    await begin_with(models.length ? models : first);
    say("New weights, at step 0.");
    await look_at_all();
  } catch (problem) { say(problem.message); }
}

async function know_engine() {
  const { schemes: all, palettes } = await ask({ ask: "schemes" });
  keep_palettes(palettes);
  schemes.replaceChildren(...all.map(({ name, title }) => make("option", { value: name }, title)));
}

const typing = "input, select, textarea, button, summary, a, dialog, tr[tabindex]";
document.addEventListener("keydown", (event) => {
  if (event.key !== " " || event.ctrlKey || event.altKey || event.metaKey || event.target.closest?.(typing)) return;
  event.preventDefault();
  toggle();
});

read_theme();
build();
system_dark.addEventListener("change", redraw);
addEventListener("resize", redraw);
addEventListener("hashchange", restore);
engine.when_dead = () => {
  pause();
  redraw();
};
start_engine();
say("The engine is starting.");
know_engine().catch(() => {});
await restore().then(() => state.said === "The engine is starting." && say(""));
