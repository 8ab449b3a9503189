// View: what a positional scheme adds to one query's logits, for all heads, next to the scores and the logits.
import { clamped, counted, make, note } from "./elements.js";
import { state } from "./state.js";
import { data, letters_of, measured, run_shown, same_numbers, sheet_made, sheet_of, telling, value_at } from "./data.js";
import { of_selection, place_words, run_words, stage, token_name } from "./frame.js";
import { fitting_cell, map_figure, maps_within, values_readout } from "./map.js";
import { picture_steps } from "./picture.js";
import { draw_step } from "./story.js";

const heads_quantities = () =>
  measured.filter((quantity) => quantity.scheme && letters_of(quantity).join(" ") === "h i j");
// The chosen quantity, then the scores and the logits where these are other numbers.
const drawn_names = () => [state.quantity, "scores", "logits"].filter((name, k, names) =>
  !names.slice(0, k).some((other) => name === other || same_numbers(data.all.get(other), data.all.get(name))));

// Rows are heads, columns keys: row i of each head's map.
function heads_sheet(name) {
  const of_head = (head) => sheet_of(name, "value", { ...state, head }, state.run);
  const sheets = run_shown().all.has(name) ? counted(run_shown().heads).map(of_head) : [];
  if (!sheets.length || sheets.some((each) => !each || each.rows <= state.i)) return null;
  const [{ columns, title, scale, shared }] = sheets;
  return sheet_made(sheets.length, columns, (head, j) => value_at(sheets[head], state.i, j),
    { row_axis: "h", column_axis: "j", name, title: `${title}, all heads`, scale, shared });
}

function draw_heads() {
  const names = drawn_names(), title = make("h2"), told = note();
  const across = stage.clientWidth >= 1150 ? names.length : 1, maps = make("div", { class: "panels", style: `--across: ${across}` });
  const room = Math.floor((stage.clientWidth - 16 * (across - 1)) / across);
  const drawn = { query: null, follow: null };
  stage.append(title, told, maps);
  of_selection(() => {
    const sheets = names.map(heads_sheet).filter(Boolean);
    title.replaceChildren("All heads of query ", token_name(state.i), `, layer ${state.layer}${run_words()}`);
    told.textContent = sheets.length && sheets[0].name === state.quantity
      ? "The addition, next to the scores before it and the logits after all additions." : `Not recorded for ${place_words()}.`;
    if (!sheets.length) return maps.replaceChildren();
    if (drawn.query === state.i) return drawn.follow;  // another key needs no other maps
    const figures = () => sheets.map((each) => map_figure(each, fitting_cell(each, clamped(room, 300, 900), 24)));
    return Object.assign(drawn, { query: state.i, follow: maps_within(maps, figures) }).follow;
  });
  picture_steps().filter((step) => step.wants()).forEach((step, k) => draw_step(step, k + 1));
}

export const heads_view = {
  key: "heads", title: "Heads", group: "Explore", wants: () => heads_quantities().length > 0,
  hint: "Look for a row unlike the others: there the learned bias is one head\u2019s own.",
  quantities: heads_quantities, opens_on: () => telling(heads_quantities()),
  controls: () => ["layer", "quantity", "head"],
  readout(at) {
    const sheets = drawn_names().map((name) => sheet_of(name, "value", at, state.run));
    return values_readout(sheets.filter(Boolean), at);
  },
  draw: draw_heads,
};
