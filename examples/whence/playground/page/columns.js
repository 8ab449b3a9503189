// A column for each model: the text of its scheme, how it learns, what it gets wrong, and its maps.
import { button, counted, format, make } from "./elements.js";
import { theme } from "./colours.js";
import { curve_of } from "./curve.js";
import { look_into } from "./inside.js";
import { begin, learners, look_at_all, unedited, when_of } from "./learners.js";
import { map_of_pairs, paint, title_of } from "./maps.js";
import { save_maps, save_svg } from "./saving.js";
import { shown_quantities } from "./sheets.js";
import { drawn, redraw, say, state } from "./state.js";
import { pause } from "./training.js";

export const columns = make("div", { class: "columns" });
const built = [];

// ---- The scheme's text
async function take_scheme(index, input) {
  const learner = learners[index], scheme = input.value.trim();
  learner.problem = "";
  redraw();
  if (scheme === learner.options.scheme) return;
  await pause();
  try {
    await begin(index, { ...learner.options, scheme });
    say(`Model ${index + 1} begins as ${scheme}.`);
    await look_at_all();
  } catch (problem) {
    learner.problem = `${problem.message} The model stays ${learner.options.scheme}.`;
    redraw();
  }
}

// ---- What is done with one model
const name_of = (index) => `${learners[index].options.scheme} ${when_of(learners[index])}`;
const save_column = ({ index, maps }) =>
  maps.length && save_maps(maps, `${name_of(index)}, layer ${state.layer}, head ${state.head}`);

// ---- One column
function build(index) {
  const column = { index, maps: [], names: "" };
  column.scheme = make("input", { list: "schemes", spellcheck: "false", autocomplete: "off",
    "data-focus": `scheme ${index}`, "aria-label": `scheme of model ${index + 1}`,
    "aria-describedby": `problem-${index}`, onchange: () => take_scheme(index, column.scheme) });
  column.problem = make("p", { class: "problem", role: "alert", id: `problem-${index}` });
  for (const part of ["facts", "answers"]) column[part] = make("p", { class: "facts" });
  for (const part of ["curve", "errors", "pairs"]) column[part] = make("div", { class: part });
  column.save_curve = button("Save curve", `svg ${index}`, () => save_svg(column.curve.firstChild,
    `curve ${name_of(index)}`), { title: "the curve as an SVG file" });
  const acts = make("p", { class: "acts" },
    button("Look into it", `look ${index}`, () => look_into(learners[index]),
      { title: "the whole inspector of this model" }),
    button("Save maps", `png ${index}`, () => save_column(column), { title: "the maps as a PNG file" }),
    column.save_curve);
  column.element = make("section", { class: `column c${index}`, "aria-label": `model ${index + 1}` },
    make("h2", {}, make("span", { class: "key", "aria-hidden": "true" }), column.scheme), column.problem, column.facts,
    column.curve, column.errors, acts, column.answers, column.pairs);
  return column;
}

const short = (count) => Intl.NumberFormat("en", { notation: "compact" }).format(count);
function show_facts({ facts, errors, answers, scheme, problem }, learner) {
  const { steps, speed, parameters, label, options: { scheme: text } } = learner;
  scheme.readOnly = Boolean(label);
  if (document.activeElement !== scheme && !(learner.problem && scheme.value)) scheme.value = text;
  problem.textContent = learner.problem;
  problem.hidden = !learner.problem;
  const rate = speed ? `, ${short(speed)} tokens/s` : "";
  facts.textContent = `${label ?? `${when_of(learner)} of ${steps}`}${rate}, ${short(parameters)} weights`;
  const { sets, percent } = learner.errors ?? { sets: ["in distribution", "sparse", "dense"], percent: [] };
  const wrong = (k) => percent[k] == null ? "\u2013" : percent[k].toFixed(1);
  errors.hidden = !sets.length;
  errors.replaceChildren(make("p", {}, `wrong answers, %${learner.errors ? `, ${learner.errors.when}` : ""}`),
    make("dl", {}, sets.map((name, k) => make("div", {}, make("dt", {}, name), make("dd", {}, wrong(k))))));
  answers.textContent = answers_of(learner);
}

// How the model answers the sequence that the maps are of.
function answers_of({ look: seen, edits }) {
  if (!seen) return "";
  const asked = seen.page.predictions.filter(Boolean);
  const right = asked.filter(({ wanted, likeliest }) => likeliest[0]?.[0] === wanted[0]).length;
  const edited = edits.length && seen.loss_without_edits !== undefined
    ? `, ${format(seen.loss_without_edits)} without the edits` : "";
  return `This sequence, ${seen.page.label}: ${right} of ${asked.length} answers right, ` +
    `loss ${format(seen.loss)}${edited}.`;
}

// ---- Maps
function build_pairs(column, quantities) {
  column.maps = [];
  column.pairs.replaceChildren(...quantities.map(({ name, caption }) => {
    const maps = ["value", "gradient"].map((part) => map_of_pairs(column.index, name, part));
    column.maps.push(...maps);
    const words = make("figcaption", { title: caption }, make("b", {}, name), caption ? `: ${caption}` : "");
    const half = ({ canvas, part }) =>
      make("div", {}, make("span", { class: "what" }, part === "value" ? "value" : title_of(name, part)), canvas);
    return make("figure", { "data-name": name }, words, make("div", { class: "two" }, maps.map(half)));
  }));
}

function show_maps(column, learner) {
  const seen = learner.look;
  if (!seen) return void column.pairs.replaceChildren(column.names = "");
  const quantities = shown_quantities(seen), names = quantities.map(({ name }) => name).join();
  if (column.names !== names) build_pairs(column, quantities);
  column.names = names;
  const room = column.pairs.firstChild ? (column.pairs.firstChild.clientWidth - 4) / 2 : 0;
  const { i, j, layer, head, quantity, part, model } = state;
  const all = [seen, unedited(learner), room, names, i, j, layer, head, quantity, part, model, theme.dark];
  if (column.painted && all.every((each, k) => each === column.painted[k])) return;
  column.painted = all;
  for (const map of column.maps) paint(map, learner, Math.floor(room));
}

drawn.push(() => {
  while (built.length > learners.length) built.pop().element.remove();
  for (const index of counted(learners.length)) {
    if (!built[index]) columns.append((built[index] = build(index)).element);
    const learner = learners[index], label = `loss of model ${index + 1}, ${learner.options.scheme}, by step`;
    show_facts(built[index], learner);
    for (const each of [built[index].curve, built[index].save_curve]) each.hidden = Boolean(learner.label);
    if (!learner.label) built[index].curve.replaceChildren(curve_of(learner, label));
  }
  columns.dataset.count = learners.length;
  built.forEach((column, index) => show_maps(column, learners[index]));
});
