// View: the change of the loss that the gradient predicted for each edit, against the real change.
import { acting_row, bar_cell, folded, make, name_cell, note, right_cell, table_of } from "./elements.js";
import { state } from "./state.js";
import { data, run_shown } from "./data.js";
import { number_cell, stage, update } from "./frame.js";

// Predicted and real changes span orders of magnitude: bars are logarithmic on either side of 0, and begin at the smallest change.
function shares_of(values) {
  const sizes = values.map(Math.abs).filter((size) => size > 0 && Number.isFinite(size));
  const least = Math.min(...sizes), decades = 1 + Math.log10(Math.max(...sizes) / least);
  return (value) => value ? Math.sign(value) * (1 + Math.log10(Math.abs(value) / least)) / decades : 0;
}
const bars_of = (share, { real, predicted }) => [real, predicted].flatMap((value) => [bar_cell(share(value)), number_cell(value)]);

function draw_edits() {
  const { edits, label } = run_shown(), share = shares_of(edits.flatMap(({ predicted, real }) => [predicted, real]));
  if (!edits.length) return stage.append(note(`No edits recorded for ${label}.`));
  const lines = edits.map((each, index) =>
    [right_cell(index + 1), name_cell(make("code", {}, each.edit)), ...bars_of(share, each), number_cell(each.real - each.predicted)]);
  stage.append(make("h2", {}, "Change of the loss by each edit"), note("Bars are logarithmic: each half covers all orders of magnitude."),
    table_of(["no.", "edit", "", "real", "", "the gradient said", "real \u2212 predicted"], lines, { class: "edits" }));
}

// ---- Heads that are silenced, one at a time
const heads_shown = 16;
function draw_effects() {
  const most = Math.max(...data.effects.map(({ real }) => Math.abs(real))) || 1;
  const row = ({ layer, head, real, predicted, edit }) => acting_row(`effect ${layer} ${head}`, () => update({ layer, head }),
    [name_cell(`layer ${layer}, head ${head}`), bar_cell(real / most), ...[real, predicted].map(number_cell)],
    { "aria-current": layer === state.layer && head === state.head, title: edit });
  const table = (some) => table_of(["silenced", "change of the loss", "", "the gradient said"], some.map(row), { class: "effects" });
  const sorted = data.effects.length > heads_shown
    ? [...data.effects].sort((one, other) => Math.abs(other.real) - Math.abs(one.real)) : data.effects;
  stage.append(make("h2", {}, "Which heads matter"), note("Each head by itself is silenced: its output is set to 0."),
    table(sorted.slice(0, heads_shown)), sorted.length > heads_shown ? folded(`the ${sorted.length - heads_shown} others`,
      () => table(sorted.slice(heads_shown))) : "");
}

export const edits_view = {
  key: "edits", title: "Edits", group: "Evidence", wants: () => data.edits.length > 0 || data.effects?.length > 0,
  hint: "Look for two bars unlike each other: there the loss bends, and a gradient alone would mislead.",
  controls: () => [],
  readout: () => [`${run_shown().edits.length} edits, ${data.effects?.length ?? 0} silenced heads`],
  draw() {
    if (data.effects?.length && state.run === "this") draw_effects();
    if (data.edits.length) draw_edits();
  },
};
