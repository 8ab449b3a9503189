// Numbers changed in the middle of a pass, in the engine's own words: "gates layer=0 head=1 i=9 j=3 = 0".
import { button, format, make, name_cell, note, right_cell, table_of } from "./elements.js";
import { ask } from "./engine.js";
import { look, selected_learner } from "./learners.js";
import { selected } from "./selection.js";
import { kind_at } from "./sheets.js";
import { drawn, redraw } from "./state.js";
import { pause } from "./training.js";

// ---- Which are in force
const place_in = (edit) => edit.replace(/ *[*+]?= *\S+$/, "");
export const with_edit = (edits, edit) => [...edits.filter((each) => place_in(each) !== place_in(edit)), edit];

// The last wish wins: a slider that is dragged asks no more than the engine answers.
let wished = null, busy = false;
export async function set_edits(learner, edits) {
  wished = { learner, edits };
  if (busy) return;
  busy = true;
  await pause();
  while (wished) {
    const wish = wished;
    wished = null;
    await put(wish);
    if (!wished) await compare(wish.learner);
  }
  busy = false;
}

// What the gradient says of each edit, and what comes of it.
async function compare(learner) {
  const { edits } = learner;
  if (!edits.length) return;
  try {
    learner.outcomes = (await ask({ ask: "edit", model: learner.index, edits })).edits;
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

const edit_here = (value) => {
  const { learner, place } = selected();
  return set_edits(learner, with_edit(learner.edits, `${place} = ${value}`));
};

// A slider and a field for one number. Its ends: what it can be, or three to each side of what it is.
export function number_input(focus, act) {
  const put = (other) => ({ target }) => {
    if (!target.value) return;
    other.value = target.value;
    act(target.value);
  };
  const field = make("input", { type: "number", step: "any", "data-focus": `${focus} number` });
  const slider = make("input", { type: "range", step: 0.01, "data-focus": focus, oninput: put(field) });
  field.addEventListener("change", put(slider));
  const show = (place, value, unit) => {
    const around = Math.round(value), held = [slider, field].includes(document.activeElement);
    if (held && slider.dataset.place === place) return;
    Object.assign(slider, { min: unit ? 0 : around - 3, max: unit ? 1 : around + 3, value });
    slider.dataset.place = place;
    field.value = format(value, 3);
    for (const each of [slider, field]) each.setAttribute("aria-label", place);
  };
  return { inputs: [slider, field], show };
}

// ---- The panel
const number = number_input("slider", edit_here), number_name = make("span");
const open = button("open", "open", () => edit_here(1)), shut = button("shut", "shut", () => edit_here(0));
const zero = button("set to 0", "zero", () => edit_here(0));
const here = make("div", { class: "controls" }, number_name, number.inputs,
  make("span", { class: "controls" }, open, shut, zero));
const masked = note("The mask hides this pair: there is nothing to edit.");
const text = make("input", { "data-focus": "edit text", spellcheck: "false", autocomplete: "off",
  placeholder: "blocks.0.attention.position.table 0=3 = 0", "aria-label": "an edit in the engine's words",
  "aria-describedby": "edit-problem" });
const problem = make("p", { class: "problem", role: "alert", id: "edit-problem" });
const form = make("form", { class: "controls", onsubmit: async (event) => {
  event.preventDefault();
  const learner = selected_learner(), edit = text.value.trim();
  if (!edit) return;
  await set_edits(learner, with_edit(learner.edits, edit));
  if (!learner.edit_problem) text.value = "";
} }, text, make("button", {}, "edit"));
const list = make("div", { class: "in-force" }), title = make("h3");
const outcome = make("p", { role: "status", "aria-live": "polite" });
export const edits_panel = make("section", { class: "edits", "aria-label": "edits" }, title, here, masked, form,
  problem, outcome, list, note("Every head and pair that an edit leaves out is meant. Edits end when training " +
    "goes on."));

function show_number({ look: seen, sheet, place }) {
  const unit = sheet.quantity.scale === "unit";
  number_name.textContent = sheet.quantity.name;
  number.show(place, sheet.value[sheet.cell], unit);
  masked.hidden = kind_at(seen, sheet) !== "masked";
  here.hidden = !masked.hidden;
  const gate = unit && sheet.quantity.name.endsWith("gates");
  for (const each of [open, shut]) each.hidden = !gate;
  zero.hidden = gate;
}

const signed = (value) => value == null ? "none" : (value > 0 ? "+" : "") + format(value, 3);
function lines_of(learner) {
  return learner.edits.map((edit, k) => {
    const { predicted, real } = learner.outcomes.find((each) => each.edit === edit) ?? {};
    const undo = button("undo", `undo ${k}`, () => set_edits(learner, learner.edits.filter((each) => each !== edit)),
      { "aria-label": `undo ${edit}` });
    return [name_cell(edit), right_cell(signed(predicted)), right_cell(signed(real)), make("td", {}, undo)];
  });
}

let before = [];
drawn.push(() => {
  const learner = selected_learner(), at = selected();
  if (!learner) return;
  const all = [learner, learner.look, learner.edits, learner.outcomes, learner.edit_problem, at?.place];
  if (all.every((each, k) => each === before[k])) return;
  before = all;
  title.textContent = `Edit model ${learner.index + 1}, ${learner.options.scheme}`;
  if (at) show_number(at);
  problem.textContent = learner.edit_problem;
  problem.hidden = !learner.edit_problem;
  list.replaceChildren(...learner.edits.length ? [table_of(["edit", "predicted", "real", ""], lines_of(learner))] : []);
  const seen = learner.look, edited = learner.edits.length && seen?.loss_without_edits !== undefined;
  outcome.textContent = edited ? `Loss ${format(seen.loss_without_edits)} before, ${format(seen.loss)} with ` +
    `${learner.edits.length > 1 ? "all edits" : "the edit"}. Predicted: gradient times change, each edit alone.` : "";
});
