// View: the change of an answer when another pass's numbers replace this pass's, by layer and head.
import { make, name_cell, note, right_cell, table_of, token_text } from "./elements.js";
import { state } from "./state.js";
import { data, index_along, sheet_made, visible } from "./data.js";
import { add_controls, number_cell, of_selection, reading, shown, stage, token_name } from "./frame.js";
import { fitting_cell, map_figure } from "./map.js";
import { answer_name, percent } from "./answers.js";

const effects = { probability: "probability of the wanted answer", real: "change of the loss", logit: "logit of the wanted answer" };
add_controls({ effect: { text: "show", options: () => Object.entries(effects) } });

const columns_of = ({ outcomes }) => outcomes.length / data.layers;
const axis_of = ({ by }) => by === "head" ? "h" : "t";
const sheet_of_map = (map) => sheet_made(data.layers, columns_of(map),
  (layer, column) => map.outcomes[layer * columns_of(map) + column][state.effect],
  { row_axis: "layer", column_axis: axis_of(map), name: map.name, title: map.name, note: map.caption,
    scale: state.effect === "probability" ? "unit" : "diverging" });
const column_at = (map, at) => Math.min(index_along(axis_of(map), columns_of(map), at), columns_of(map) - 1);
const outcome_at = (map, at) => map.outcomes[at.layer * columns_of(map) + column_at(map, at)];

const line_of = ({ place, predicted, real, logit, probability, likeliest }) => [name_cell(make("code", {}, place)),
  make("td", {}, answer_name(likeliest)), right_cell(percent(probability)), ...[logit, real].map(number_cell),
  predicted == null ? right_cell("\u2013") : number_cell(predicted)];

function draw_patch() {
  const { maps, before, answer, token, texts, command } = data.patches, table = make("div");
  const across = Math.max(1, Math.floor(stage.clientWidth / 300)), panels = make("div", { class: "panels", style: `--across: ${across}` });
  stage.append(make("h2", {}, "The answer after ", token_name(token), " with numbers of another pass"),
    make("p", {}, "Right is ", answer_name(answer), "; the model says ", answer_name(before.likeliest),
      `, with ${percent(before.probability)} for the wanted one. Each cell is a pass with the numbers of one head replaced by those of `,
      make("code", {}, command), ":"),
    note(texts.map((text) => [token_text(visible(text)), " "])), panels, table);
  for (const map of maps) {
    const sheet = sheet_of_map(map), heads = map.by === "head";
    const cell = fitting_cell(sheet, Math.min(900, stage.clientWidth), heads ? 34 : 16);
    (heads ? panels : stage).append(map_figure(sheet, cell, { numbers: heads }));
  }
  of_selection(() => table.replaceChildren(table_of(
    ["numbers put in", "it says", token_text(visible(answer)), "its logit", "change of the loss", "the gradient predicts"],
    [line_of(before), ...maps.map((map) => line_of(outcome_at(map, state)))], { class: "edits" })));
}

export const patch_view = {
  key: "patch", title: "Patch", group: "Evidence", wants: () => Boolean(data.patches?.maps.length),
  hint: "Look for the cells in which the wanted answer loses its probability: those heads carry the decision.",
  controls: () => ["effect"],
  readout: (at) => [`layer ${at.layer}, head ${at.head}: `,
    ...data.patches.maps.flatMap((map) => reading(map.name, shown(outcome_at(map, at)[state.effect])))],
  draw: draw_patch,
};
