// View: the change of the loss when a head is silenced, and what the gradient had predicted.
import { acting_row, bar_cell, folded, make, name_cell, note, table_of } from "./elements.js";
import { state } from "./state.js";
import { data } from "./data.js";
import { number_cell, stage, update } from "./frame.js";

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
  key: "edits", title: "Silenced heads", group: "Evidence", wants: () => data.effects?.length > 0,
  hint: "Look for changes far from what the gradient said: there the loss bends, and a gradient alone would mislead.",
  controls: () => [],
  readout: () => [`${data.effects.length} silenced heads`],
  draw: () => state.run === "this" && draw_effects(),
};
