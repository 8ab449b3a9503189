// What is edited besides pairs: vectors of the pass (q, k, v) and parameters of the scheme; one number of them or many.
import { button, clamped, counted, dress, format, make } from "./elements.js";
import { theme } from "./colours.js";
import { number_input, set_edits, with_edit } from "./edits.js";
import { selected_learner, unedited } from "./learners.js";
import { map_of, paint } from "./maps.js";
import { kind_at, place_text, sheet_of, vectors_of, words_at } from "./sheets.js";
import { choose, drawn, redraw, state } from "./state.js";

// ---- What is chosen: the first parameter, or q, where a model has nothing of that name
function sheet_in(look) {
  const all = vectors_of(look), first = all.find(({ axes, name }) => !axes || name === "q");
  return sheet_of(look, all.find(({ probe }) => probe === state.vector) ?? first);
}

// An edit means all that it names; which axes each of these leaves out is what `place_text` keeps.
const scopes = {
  "this number": ["leading", "row", "column"],
  "its row": ["leading", "row"],
  "its column": ["leading", "column"],
  "its column in all maps": ["column"],
  "all numbers": [],
};
const signs = { "=": "set to", "+=": "add", "*=": "times" };

function edit(value, sign = operator.value) {
  const learner = selected_learner(), place = place_text(sheet_in(learner.look), scopes[scope.value]);
  return set_edits(learner, with_edit(learner.edits, `${place} ${sign} ${value}`));
}

// ---- The panel
const select = (focus, label, onchange) => make("select", { "data-focus": focus, "aria-label": label, onchange });
const chooser = select("vector", "what is edited", ({ target }) => choose({ vector: target.value }));
const slice = select("slice", "which map of it", ({ target }) => choose({ slice: Number(target.value) }));
const scope = select("scope", "how much of it is edited", redraw);
const operator = select("sign", "how it is edited", redraw);
const number = number_input("vector slider", edit);
const zero = button("set to 0", "vector zero", () => {
  operator.value = "=";
  edit(0, "=");
});
const places = ["row", "column"].map((role) => {
  const input = make("input", { type: "number", min: 0, step: 1, "data-focus": role, onchange: () => {
    const { key, extent } = sheet_in(selected_learner().look)[role];
    choose({ [key]: clamped(Math.round(Number(input.value)), 0, extent - 1) });
  } });
  const words = make("span");
  return { role, input, words, label: make("label", {}, words, input) };
});
const maps = ["value", "gradient"].map((part) => map_of(part, `vector ${part}`, sheet_in));
const two = make("div", { class: "two" }, maps.map(({ part, canvas }) =>
  make("div", { class: "scroll" }, make("span", { class: "what" }, part), canvas)));
const title = make("h3"), caption = make("p", { class: "facts" });
const said = make("p", { class: "facts", role: "status" });
export const weights_panel = make("section", { class: "weights", "aria-label": "edit vectors and weights" }, title,
  make("div", { class: "controls" }, chooser, slice,
    make("span", { class: "controls" }, places.map(({ label }) => label))), caption, two, said,
  make("div", { class: "controls" }, scope, operator), make("div", { class: "controls" }, number.inputs, zero));

function offer(input, options, chosen) {
  const key = JSON.stringify(options);
  if (input.dataset.options !== key) {
    input.replaceChildren(...options.map(([value, text]) => make("option", { value }, text)));
  }
  input.dataset.options = key;
  input.value = options.some(([value]) => value === chosen) ? chosen : options[0][0];
}

function show_choices(look, sheet) {
  const { quantity, leading, slices, index } = sheet;
  offer(chooser, vectors_of(look).map(({ probe, name }) => [probe, name]), quantity.probe);
  slice.hidden = Boolean(quantity.axes) || slices === 1;
  offer(slice, counted(slice.hidden ? 1 : slices).map((k) => [k, words_at(leading, k).join(" ")]), index);
  const named = new Map(Object.keys(scopes).reverse().map((name) => [place_text(sheet, scopes[name]), [name, name]]));
  offer(scope, [...named.values()].reverse(), scope.value);
  offer(operator, Object.entries(signs), operator.value);
  for (const { role, input, words, label } of places) {
    const { word, extent, at } = sheet[role];
    label.hidden = !word;
    words.textContent = /\d/.test(word) ? role : word;
    dress(input, { max: extent - 1 });
    if (document.activeElement !== input) input.value = at;
  }
}

// What the slider says: the number of the edit that is in force, or one that changes nothing.
function show_number({ edits }, sheet) {
  const begin = `${place_text(sheet, scopes[scope.value])} ${operator.value} `;
  const given = edits.find((each) => each.startsWith(begin))?.slice(begin.length);
  const value = given ?? { "=": sheet.value[sheet.cell], "+=": 0, "*=": 1 }[operator.value];
  number.show(begin, Number(value), operator.value === "=" && sheet.quantity.scale === "unit");
}

let before = [];
drawn.push(() => {
  const learner = selected_learner(), look = learner?.look;
  weights_panel.hidden = !look;
  if (!look) return;
  const chosen = ["vector", "slice", "row", "column", "i", "j", "layer", "head"].map((key) => state[key]);
  const all = [look, unedited(learner), learner.edits, ...chosen, scope.value, operator.value, two.clientWidth,
    theme.dark];
  if (all.every((each, k) => each === before[k])) return;
  before = all;
  const sheet = sheet_in(look);
  show_choices(look, sheet);
  show_number(learner, sheet);
  title.textContent = `Edit vectors and weights of model ${learner.index + 1}`;
  caption.textContent = sheet.quantity.caption ?? sheet.of;
  const wide = sheet.column.extent > 2 * sheet.row.extent;
  two.classList.toggle("stacked", wide);
  for (const map of maps) paint(map, learner, Math.floor(wide ? two.clientWidth : (two.clientWidth - 4) / 2), 320);
  const kind = kind_at(look, sheet), gradient = sheet.gradient ? format(sheet.gradient[sheet.cell]) : "none";
  // Who moves a pair elsewhere hears of that alone.
  said.setAttribute("aria-live", weights_panel.contains(document.activeElement) ? "polite" : "off");
  said.textContent = `${place_text(sheet)}: ${format(sheet.value[sheet.cell])}, gradient ${gradient}` +
    (kind && kind !== "lives" ? ` (${kind})` : "");
});
