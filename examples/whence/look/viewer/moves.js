// Edits of numbers in the middle of a pass, in the engine's own words: "gates layer=0 head=1 i=9 j=3 = 0". They change
// pairs, vectors of the pass (q, k, v) and parameters of the scheme; one number or many.
import { button, clamped, counted, dress, format, loss_text, make, name_cell, note, right_cell, table_of, unique } from "./elements.js";
import { state } from "./state.js";
import { key_of, letters_of, part_of, place_text, word_of } from "./data.js";
import { choose, update } from "./frame.js";
import { source } from "./source.js";
import { drawn, layer_of, look, redraw, selected_learner, sheet_in } from "./learners.js";
import { cell_of } from "./map.js";
import { map_of, paint } from "./columns.js";
import { gradient_at, kind_at, place_in } from "./selection.js";
import { pause } from "./training.js";

// ---- Edits in force
const place_of_edit = (edit) => edit.replace(/ *[*+]?= *\S+$/, "");
const with_edit = (edits, edit) => [...edits.filter((each) => place_of_edit(each) !== place_of_edit(edit)), edit];

// Only the newest request waits: a slider sends no more than the engine answers.
let wished = null, busy = Promise.resolve(), working = false;
export function set_edits(learner, edits) {
  wished = { learner, edits };
  if (!working) busy = work();
  return busy;
}
async function work() {
  working = true;
  await pause();
  while (wished) {
    const wish = wished;
    wished = null;
    await put(wish);
    if (!wished) await compare(wish.learner);
  }
  working = false;
}

// Gets each edit's predicted and real effect.
async function compare(learner) {
  const { edits } = learner;
  if (!edits.length) return;
  try {
    learner.outcomes = (await source.ask({ ask: "edit", model: learner.index, edits })).edits;
  } catch (problem) { learner.edit_problem = problem.message; }
  redraw();
}

async function put({ learner, edits }) {
  const before = learner.edits;
  Object.assign(learner, { edits, edit_problem: "" });
  try {
    if (edits.length) await look(learner, { edits: [] });
    await look(learner);
  } catch (problem) {
    Object.assign(learner, { edits: before, edit_problem: problem.message });
    await look(learner).catch(() => {});
  }
  redraw();
}

const put_edit = (edit, learner = selected_learner()) => set_edits(learner, with_edit(learner.edits, edit));

// ---- The panel of all edits in force
const text = make("input", { "data-focus": "edit text", spellcheck: "false", autocomplete: "off",
  placeholder: "blocks.0.attention.position.table 0=3 = 0", "aria-label": "an edit in the engine's words",
  "aria-describedby": "edit-problem" });
const problem = make("p", { class: "problem", role: "alert", id: "edit-problem" });
const form = make("form", { class: "controls", onsubmit: async (event) => {
  event.preventDefault();
  const learner = selected_learner(), edit = text.value.trim();
  if (!edit) return;
  await put_edit(edit, learner);
  if (!learner.edit_problem) text.value = "";
} }, text, make("button", {}, "edit"));
const list = make("div", { class: "in-force" }), title = make("h3");
const outcome = make("p", { role: "status", "aria-live": "polite" });
export const edits_panel = make("section", { class: "edits", "aria-label": "edits" }, title, form,
  problem, outcome, list, note("An edit changes every head and pair that it leaves out. Edits end when training " +
    "goes on."));

function text_of_number(sheet) {
  const { row, column } = cell_of(sheet, state);
  return sheet.cells[clamped(row, 0, sheet.rows - 1) * sheet.columns + clamped(column, 0, sheet.columns - 1)];
}

const signed = (value) => value == null ? "none" : (value > 0 ? "+" : "") + format(value, 3);
const lines_of = (learner) => learner.edits.map((edit, k) => {
  const { predicted, real } = learner.outcomes.find((each) => each.edit === edit) ?? {};
  const undo = button("undo", `undo ${k}`, () => set_edits(learner, learner.edits.filter((each) => each !== edit)),
    { "aria-label": `undo ${edit}` });
  return [name_cell(edit), right_cell(signed(predicted)), right_cell(real === null ? loss_text(real) : signed(real)), make("td", {}, undo)];
});

// Describes the effect of the edits in force; "" before the engine has answered.
export function outcome_words({ look: seen, edits }) {
  if (!edits.length || seen?.loss_without_edits === undefined) return "";
  return `Loss ${loss_text(seen.loss_without_edits)} before, ${loss_text(seen.loss)} with ` +
    `${edits.length > 1 ? "all edits" : "the edit"}. Predicted: gradient times change, each edit alone.`;
}

// ---- The panel of numbers: pairs, vectors and parameters
// Equal parameters of all layers are listed once; the layer's own is edited.
const without_block = (name) => name.replace(/^blocks\.\d+\./, "");
function vectors_of({ run }) {
  const all = [...run.all.values()], parameters = all.filter(({ parameter }) => parameter);
  return [...unique(parameters.map(({ name }) => without_block(name))).map((key) => {
    const alike = parameters.filter(({ name }) => without_block(name) === key);
    const { name } = alike.find(({ layers: [{ layer }] }) => layer === state.layer) ?? alike.at(-1);
    return { key, name, words: key.replace("attention.position.", ""), parameter: true };
  }), ...run.quantities.filter(({ axes }) => !/^\w i j$/.test(axes)).map(({ probe, name }) => ({ key: probe, name, words: name }))];
}
// Returns the chosen vector, else the first parameter, else q; the selected pair if none was chosen.
function vector_in(seen) {
  const all = vectors_of(seen);
  if (!state.vector) return pair_here();
  return all.find(({ key }) => key === state.vector) ?? all.find(({ parameter, name }) => parameter || name === "q");
}
const pair_here = () => ({ key: "", name: state.quantity, words: `${state.quantity} of the pair` });

// An edit changes all that it names; each scope names some axes: those before the last two, row, column.
const scopes = {
  "this number": ({ before, row, column }) => [...before, ...row, ...column],
  "its row": ({ before, row }) => [...before, ...row],
  "its column": ({ before, column }) => [...before, ...column],
  "its column in all maps": ({ column }) => column,
  "all numbers": () => [],
};
const signs = { "=": "set to", "+=": "add", "*=": "times" };
function place_meant(seen, of = scope.value) {
  const { of: what, along } = place_in(seen, vector_in(seen).name), count = along.length;
  const parts = { before: along.slice(0, -2), row: count > 1 ? [along[count - 2]] : [], column: [along[count - 1]] };
  return place_text({ of: what, along: scopes[of](parts) });
}
function edit(value, sign = operator.value) {
  const learner = selected_learner();
  return put_edit(`${place_meant(learner.look)} ${sign} ${value}`, learner);
}

const select = (focus, label, onchange) => make("select", { "data-focus": focus, "aria-label": label, onchange });
const chooser = select("vector", "vector to edit", ({ target }) => update({ vector: target.value }));
const slice = select("slice", "map to edit", ({ target }) => update({ c: Number(target.value) }));
const scope = select("scope", "part to edit", redraw);
const operator = select("sign", "kind of edit", redraw);
// A slider and a field for one number, from 0 to 1 for a gate, else three to each side of the number.
const put_from = (other) => ({ target }) => {
  if (!target.value) return;
  other.value = target.value;
  edit(target.value);
};
const field = make("input", { type: "number", step: "any", "data-focus": "vector slider number" });
const slider = make("input", { type: "range", step: 0.01, "data-focus": "vector slider", oninput: put_from(field) });
field.addEventListener("change", put_from(slider));
const vector_zero = button("set to 0", "vector zero", () => {
  operator.value = "=";
  edit(0, "=");
});
const places = ["row", "column"].map((role) => {
  const input = make("input", { type: "number", min: 0, step: 1, "data-focus": role,
    onchange: () => choose({ [input.dataset.along]: clamped(Math.round(Number(input.value)), 0, Number(input.max)) }) });
  const words = make("span");
  return { role, input, words, label: make("label", {}, words, input) };
});
const maps = ["value", "gradient"].map((kind) => map_of(`vector ${kind}`, kind));
const two = make("div", { class: "two" }, maps.map(({ kind, canvas }) =>
  make("div", { class: "scroll" }, make("span", { class: "what" }, kind), canvas)));
const vector_title = make("h3"), caption = make("p", { class: "facts" });
const said = make("p", { class: "facts", role: "status" });
export const weights_panel = make("section", { class: "weights", "aria-label": "edit numbers" }, vector_title,
  make("div", { class: "controls" }, chooser, slice, places.map(({ label }) => label)), caption, two, said,
  make("div", { class: "controls" }, scope, operator), make("div", { class: "controls" }, slider, field, vector_zero));

function offer(input, options, chosen) {
  const key = JSON.stringify(options);
  if (input.dataset.options !== key) {
    input.replaceChildren(...options.map(([value, words]) => make("option", { value }, words)));
  }
  input.dataset.options = key;
  input.value = options.some(([value]) => value === chosen) ? chosen : options[0][0];
}

function show_choices(seen, vector, sheet) {
  const { quantity } = sheet, letters = letters_of(quantity), { shape } = part_of(quantity, layer_of(quantity));
  offer(chooser, [pair_here(), ...vectors_of(seen)].map(({ key, words }) => [key, words]), vector.key);
  slice.hidden = letters[0] !== "c" || letters.length < 3;
  offer(slice, counted(slice.hidden ? 1 : shape[0]).map((k) => [String(k), String(k)]), String(state.c));
  const named = new Map(Object.keys(scopes).reverse().map((name) => [place_meant(seen, name), [name, name]]));
  offer(scope, [...named.values()].reverse(), scope.value);
  offer(operator, Object.entries(signs), operator.value);
  for (const { role, input, words, label } of places) {
    const axis = sheet[`${role}_axis`], now = cell_of(sheet, state)[role], extent = sheet[`${role}s`];
    label.hidden = !axis || extent === 1;
    words.textContent = word_of(axis);
    dress(input, { max: extent - 1, "data-along": key_of(axis) });
    if (document.activeElement !== input) input.value = clamped(now, 0, extent - 1);
  }
}

// Shows the number of the edit in force, or a number that changes nothing.
function show_vector_number({ edits, look: seen }, sheet) {
  const begin = `${place_meant(seen)} ${operator.value} `, given = edits.find((each) => each.startsWith(begin));
  const value = given?.slice(begin.length) ?? { "=": text_of_number(sheet), "+=": 0, "*=": 1 }[operator.value];
  const unit = operator.value === "=" && sheet.scale === "unit", around = Math.round(value);
  if ([slider, field].includes(document.activeElement) && slider.dataset.place === begin) return;
  Object.assign(slider, { min: unit ? 0 : around - 3, max: unit ? 1 : around + 3, value });
  slider.dataset.place = begin;
  field.value = format(Number(value), 3);
  for (const each of [slider, field]) each.setAttribute("aria-label", begin);
}

function show_vector(learner) {
  const seen = learner.look, vector = vector_in(seen), sheet = sheet_in(seen, vector.name);
  show_choices(seen, vector, sheet);
  show_vector_number(learner, sheet);
  vector_title.textContent = `Edit numbers of model ${learner.index + 1}`;
  caption.textContent = sheet.quantity.parameter ? vector.name : sheet.quantity.caption;
  const wide = sheet.columns > 2 * sheet.rows, kind = kind_at(sheet);
  two.classList.toggle("stacked", wide);
  two.hidden = !state.vector;  // maps of pairs are beside this panel
  const room = Math.floor(wide ? two.clientWidth : (two.clientWidth - 4) / 2);
  if (room > 0) for (const map of maps) paint(map, learner, vector.name, room, Math.max(4, 320 / sheet.rows));
  // readers who move a pair elsewhere hear only that
  said.setAttribute("aria-live", weights_panel.contains(document.activeElement) ? "polite" : "off");
  said.textContent = `${place_text(place_in(seen, vector.name))}: ${format(text_of_number(sheet))}, gradient ` +
    `${gradient_at(sheet_in(seen, vector.name, "gradient"))}${kind ? ` (${kind})` : ""}`;
}

let listed = [];
drawn.push(() => {
  const learner = selected_learner();
  weights_panel.hidden = !learner?.look;
  if (!learner?.look || !edits_panel.isConnected) return;
  title.textContent = `Edits of model ${learner.index + 1}, ${learner.options.scheme}`;
  problem.textContent = learner.edit_problem;
  const all = [learner.index, learner.edits, learner.outcomes];
  if (all.some((each, k) => each !== listed[k])) list.replaceChildren(...learner.edits.length
    ? [table_of(["edit", "predicted", "real", ""], lines_of(learner))] : []);
  listed = all;
  outcome.textContent = outcome_words(learner);
  show_vector(learner);
});
