// A column for each model: the text of its scheme, its loss curve, its wrong answers and its maps.
import { button, clamped, counted, dress, loss_text, make, sum_of, svg_line, svg_text } from "./elements.js";
import { pointer, state } from "./state.js";
import { range_of } from "./data.js";
import { share_of, theme } from "./colour.js";
import { choose, update } from "./frame.js";
import { geometry, living_map, map_label, paint_base, paint_cursor } from "./map.js";
import { chart, path_through } from "./curves.js";
import {
  begin, drawn, learners, look_at_all, redraw, say, sheet_in, shown_quantities, unedited, when_of
} from "./learners.js";
import { pause } from "./training.js";

export const columns = make("div", { class: "columns" });
const built = [];

// ---- Maps, of pairs here and of vectors in moves.js
// A click also sets the state in `meant`.
export function map_of(focus, kind, meant = {}) {
  const pick = (place) => Object.entries(meant).every(([key, value]) => state[key] === value) ? choose(place)
    : update({ ...place, ...meant });
  return Object.assign(living_map(focus, pick), { kind });
}

// Repaints a map whose data or room has changed, and outlines the cells that an edit has moved.
export function paint(map, learner, name, room, most = 16) {
  const { look: seen } = learner, plain = unedited(learner), ratio = devicePixelRatio || 1;
  const sheet = sheet_in(seen, name, map.kind), offset = sheet?.cells.byteOffset;
  const now = [seen, plain, offset, room, theme.dark];
  if (!map.painted || now.some((each, k) => each !== map.painted[k])) {
    map.painted = now;
    if (!sheet) return show_none(map, seen.run.all.has(name) ? "no gradient" : "");
    const before = plain && plain !== seen && sheet_in(plain, name, map.kind);
    const cell = clamped(Math.floor((room - 2) * ratio / sheet.columns), 1, Math.floor(most * ratio)) / ratio;
    map.sheet = sheet;
    paint_base(map, geometry(sheet, cell, { axes: false, bar: true }),
      { over: before ? (context, g) => outline(context, g, sheet, before) : null });
    dress(map.canvas, { "aria-label": `${sheet.title} of model ${learner.index + 1}, ${learner.options.scheme}: ` +
      `${map_label(sheet)}; arrow keys move the selection` });
  }
  if (map.sheet) paint_cursor(map, { ...state, ...pointer.hover });
}

function show_none(map, words) {
  map.sheet = null;
  Object.assign(map.canvas, { width: 110, height: 30, style: "" });
  const context = map.canvas.getContext("2d");
  context.fillStyle = theme.soft;
  context.fillText(words, 4, 20);
}

// Outlines the cells whose colour an edit has moved by a twentieth of the scale or more.
function outline(context, { cell, left, top }, now, before) {
  const { rows, columns, scale } = now, range = range_of(now, false);
  if (before.cells.length !== now.cells.length) return;
  const moved = now.cells.map((value, k) =>
    Math.abs(share_of(scale, value, range) - share_of(scale, before.cells[k], range)) >= 0.05);
  const at = (row, column) => Boolean(row >= 0 && column >= 0 && column < columns && moved[row * columns + column]);
  context.beginPath();
  for (const row of counted(rows + 1)) {
    for (const column of counted(columns + 1)) {
      const x = left + column * cell, y = top + row * cell;
      if (at(row, column) !== at(row - 1, column)) context.moveTo(x, y), context.lineTo(x + cell, y);
      if (at(row, column) !== at(row, column - 1)) context.moveTo(x, y), context.lineTo(x, y + cell);
    }
  }
  Object.assign(context, { strokeStyle: theme.accent, lineWidth: 1.2 });
  context.stroke();
}

// ---- The loss over the steps, on a logarithmic axis that all models share
// Returns the mean logarithm of the loss over every few steps, so that a long training is a short path.
function thinned(losses, most = 170) {
  const every = Math.ceil(losses.length / most) || 1;
  return counted(Math.ceil(losses.length / every)).map((k) => {
    const part = losses.slice(k * every, (k + 1) * every).map((loss) => Math.log10(Math.max(loss, 1e-9)));
    return { step: k * every + (part.length + 1) / 2, level: sum_of(part) / part.length };
  }).filter(({ level }) => Number.isFinite(level));
}

function curve_of(learner) {
  const lines = learners.map((each) => ({ each, points: thinned(each.losses) }));
  const levels = lines.flatMap(({ points }) => points.map(({ level }) => level));
  const low = Math.floor(Math.min(-1, ...levels)), high = Math.ceil(Math.max(0.31, ...levels) * 4) / 4;
  const last = Math.min(learner.steps, Math.max(50, ...learners.map(({ step }) => 1.08 * step)));
  const label = `loss of model ${learner.index + 1}, ${learner.options.scheme}, by step`;
  const frame = chart({ label, width: 340, height: 150, left: 34, right: 8, top: 8, bottom: 20, x: [0, last],
    y: [low, high] });
  for (const level of counted(Math.floor(high) - low + 1).map((k) => low + k)) {
    frame.add(svg_line("grid", [frame.left, frame.y_of(level)], [frame.width - frame.right, frame.y_of(level)]),
      svg_text("tick end", frame.left - 5, frame.y_of(level) + 4, level < -3 ? `1e${level}` : String(10 ** level)));
  }
  const numbered = [5, 10, 20, 50, 100, 200, 500, 1000].find((step) => last / step <= 6) ?? 5000;
  for (let step = 0; step <= last; step += numbered) {
    frame.add(svg_text("tick middle", clamped(frame.x_of(step), frame.left, frame.width - 18), 145, step));
  }
  const way = (points) => points.map(({ step, level }) => `${frame.x_of(step).toFixed(1)} ${frame.y_of(level).toFixed(1)}`);
  const others_first = lines.sort((one, other) => Number(one.each === learner) - Number(other.each === learner));
  frame.add(...others_first.map(({ each, points }) =>
    path_through(each === learner ? `curve c${learner.index}` : "other", way(points))));
  return frame.picture;
}

// ---- One column
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

function build(index) {
  const column = { index, maps: [], names: "" };
  column.scheme = make("input", { list: "schemes", spellcheck: "false", autocomplete: "off",
    "data-focus": `scheme ${index}`, "aria-label": `scheme of model ${index + 1}`,
    "aria-describedby": `problem-${index}`, onchange: () => take_scheme(index, column.scheme) });
  column.problem = make("p", { class: "problem", role: "alert", id: `problem-${index}` });
  for (const part of ["facts", "answers"]) column[part] = make("p", { class: "facts" });
  for (const part of ["curve", "errors", "pairs"]) column[part] = make("div", { class: part });
  const look_into = button("Look into it", `look ${index}`, () => update({ learner: index, view: "story" }),
    { title: "the other views, of this model" });
  column.element = make("section", { class: `column c${index}`, "aria-label": `model ${index + 1}` },
    make("h2", {}, make("span", { class: "key", "aria-hidden": "true" }), column.scheme), column.problem, column.facts,
    column.curve, column.errors, look_into, column.answers, column.pairs);
  return column;
}

const short = (count) => Intl.NumberFormat("en", { notation: "compact" }).format(count);
function show_facts({ facts, errors, answers, scheme, problem }, learner) {
  const { steps, speed, parameters, label, options: { scheme: text } } = learner;
  scheme.readOnly = Boolean(label);
  if (document.activeElement !== scheme && !(learner.problem && scheme.value)) scheme.value = text;
  problem.textContent = learner.problem;
  const rate = speed ? `, ${short(speed)} tokens/s` : "";
  facts.textContent = `${label ?? `${when_of(learner)} of ${steps}`}${rate}, ${short(parameters)} weights`;
  const { sets, percent } = learner.errors ?? { sets: ["in distribution", "sparse", "dense"], percent: [] };
  const wrong = (k) => percent[k] == null ? "\u2013" : percent[k].toFixed(1);
  errors.hidden = !sets.length;
  errors.replaceChildren(make("p", {}, `wrong answers, %${learner.errors ? `, ${learner.errors.when}` : ""}`),
    make("dl", {}, sets.map((name, k) => make("div", {}, make("dt", {}, name), make("dd", {}, wrong(k))))));
  answers.textContent = answers_of(learner);
}

function answers_of({ look: seen, edits }) {
  if (!seen) return "";
  const asked = seen.run.predictions.filter(Boolean);
  const right = asked.filter(({ wanted, likeliest }) => likeliest[0]?.[0] === wanted[0]).length;
  const edited = edits.length && seen.loss_without_edits !== undefined
    ? `, ${loss_text(seen.loss_without_edits)} without the edits` : "";
  return `This sequence, ${seen.run.label}: ${right} of ${asked.length} answers right, loss ${loss_text(seen.loss)}${edited}.`;
}

function build_pairs(column, quantities) {
  column.maps = [];
  column.pairs.replaceChildren(...quantities.map(({ name, caption }) => {
    const maps = ["value", "gradient"].map((kind) => Object.assign(map_of(`${column.index} ${name} ${kind}`, kind,
      { quantity: name, half: kind, learner: column.index }), { name }));
    column.maps.push(...maps);
    const words = make("figcaption", { title: caption }, make("b", {}, name), caption ? `: ${caption}` : "");
    const half = ({ canvas, kind }) =>
      make("div", {}, make("span", { class: "what" }, kind === "value" ? "value" : `dLoss/d${name}`), canvas);
    return make("figure", { "data-name": name }, words, make("div", { class: "two" }, maps.map(half)));
  }));
}

function show_maps(column, learner) {
  const seen = learner.look;
  if (!seen) return void column.pairs.replaceChildren(column.names = "");
  const quantities = shown_quantities(seen), names = quantities.map(({ name }) => name).join();
  if (column.names !== names) build_pairs(column, quantities);
  column.names = names;
  const room = column.pairs.firstChild ? Math.floor((column.pairs.firstChild.clientWidth - 4) / 2) : 0;
  if (room) for (const map of column.maps) paint(map, learner, map.name, room);
}

export function show_cursors(at) {
  for (const map of built.flatMap(({ maps }) => maps)) if (map.sheet && map.base) paint_cursor(map, at);
}

drawn.push(() => {
  while (built.length > learners.length) built.pop().element.remove();
  for (const index of counted(learners.length)) {
    if (!built[index]) columns.append((built[index] = build(index)).element);
    const learner = learners[index], column = built[index];
    show_facts(column, learner);
    column.curve.hidden = Boolean(learner.label);
    if (!learner.label) column.curve.replaceChildren(curve_of(learner));
  }
  columns.dataset.count = learners.length;
  built.forEach((column, index) => show_maps(column, learners[index]));
});
