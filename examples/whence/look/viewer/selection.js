// The selected pair: its tokens, its numbers in every model, and the causes of zeros.
import { acting_row, button, make, name_cell, right_cell, table_of, token_text } from "./elements.js";
import { state } from "./state.js";
import { part_of, place_text, words_of_place } from "./data.js";
import { cause_bar } from "./colour.js";
import { focus_again, update } from "./frame.js";
import { cause_at, text_at } from "./map.js";
import { legend } from "./why.js";
import { drawn, layer_of, learners, of_pairs, selected_learner, settle_pair, sheet_in, shown_quantities } from "./learners.js";

// ---- The selection: its sheets and, in the engine's words, its place
const quantity_of = ({ run }, name) => run.all.get(name);
export function place_in(seen, name) {
  const quantity = quantity_of(seen, name), layer = layer_of(quantity);
  return words_of_place(quantity, part_of(quantity, layer), state);
}
export function selected() {
  const learner = selected_learner(), seen = learner?.look;
  if (!seen || !of_pairs(seen).some(({ name }) => name === state.quantity)) return null;
  const sheet = sheet_in(seen, state.quantity), gradient = sheet_in(seen, state.quantity, "gradient");
  return { learner, look: seen, sheet, gradient, place: place_text(place_in(seen, state.quantity)) };
}
export function kind_at(sheet) {
  const kind = sheet?.causes ? sheet.run.causes[cause_at(sheet, state)]?.kind ?? "" : "";
  return kind === "lives" ? "" : kind;
}
export const gradient_at = (sheet) => sheet ? text_at(sheet, state) : "none";

// ---- The tokens
const token_strip = ({ run: { words, targets } }) => words.map((text, k) => make("span", { class: ["at", k === state.i &&
  "query", k === state.j && "key", targets[k] !== null && "asked"].filter(Boolean).join(" ") }, token_text(text)));
const token = (seen, k) => [`${k} \u2018`, token_text(seen.run.words[k]), "\u2019"];

// ---- Its numbers in all models
function rows_of({ look: seen, index }) {
  return shown_quantities(seen).map(({ name }) => {
    const now = index === state.learner && name === state.quantity, sheet = sheet_in(seen, name);
    return acting_row(`row ${index} ${name}`, () => update({ learner: index, quantity: name }),
      [name_cell(make("span", { class: `dot c${index}` }, index + 1), ` ${name}`), right_cell(text_at(sheet, state)),
        right_cell(gradient_at(sheet_in(seen, name, "gradient"))), make("td", {}, kind_at(sheet))],
      { "aria-current": now ? "true" : null });
  });
}

// ---- Why gradients are zero
function causes_of({ look: { run }, sheet }) {
  const { probe, axes } = sheet.quantity, layer = layer_of(sheet.quantity), alike = run.shares.filter((each) =>
    each.probe === probe && each.layer === layer);
  const share = alike.find(({ head }) => head === (axes[0] === "h" ? state.head : null)) ?? alike[0];
  if (!share) return ["No shares recorded for this quantity."];
  return [cause_bar(run.causes, share.by.map((count) => count / share.entries), 360, 18), legend(run.causes, share.by)];
}

// ---- The panel
const heading = make("h3", {}), strip = make("p", { class: "strip" }), numbers = make("div");
const chooser = make("select", { "data-focus": "quantity",
  onchange: ({ target }) => update({ quantity: target.value }) });
const causes = make("div", { class: "causes" }), causes_title = make("h3", {});
export const selection = make("section", { class: "selection", "aria-label": "the selected pair" }, heading, strip,
  numbers, make("div", { class: "controls" }, make("label", {}, "quantity ", chooser), button("Work it out", "work out",
    () => update({ view: "quantities", show: "one" }), { title: "this number and its gradient as sums" })));
export const causes_panel = make("section", { "aria-label": "why gradients are zero" }, causes_title, causes);

// Returns the status line's words.
export function pair_words(at) {
  const here = selected();
  if (!here) return [];
  const { learner, sheet, gradient, look: seen } = here;
  return [`${sheet.name} of model ${learner.index + 1}, query `, ...token(seen, at.i), ", key ", ...token(seen, at.j), ": ",
    make("b", {}, text_at(sheet, at)), ", gradient ", make("b", {}, gradient ? text_at(gradient, at) : "none")];
}

let before = [];
drawn.push(() => {
  settle_pair();
  const here = selected();
  if (!here) return;
  const { learner, look: seen, sheet, place } = here;
  const all = [...learners.map((each) => each.look), place, learner.index, state.digits];
  if (all.length === before.length && all.every((each, k) => each === before[k])) return;
  before = all;
  heading.replaceChildren("query ", ...token(seen, state.i), " \u2192 key ", ...token(seen, state.j));
  strip.replaceChildren(...token_strip(seen));
  const focus = document.activeElement?.dataset.focus;
  numbers.replaceChildren(table_of(["", "value", "dLoss/d", "why zero"],
    learners.filter((each) => each.look).flatMap(rows_of)));
  focus_again(focus);
  chooser.replaceChildren(...of_pairs(seen).map(({ name }) => make("option", { value: name }, name)));
  chooser.value = state.quantity;
  causes_title.textContent = `Where dLoss/d${sheet.name} is zero: model ${learner.index + 1}`;
  causes.replaceChildren(...causes_of(here));
});
