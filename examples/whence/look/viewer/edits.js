// View: the change of the loss when a head is silenced, and what the gradient had predicted.
import { acting_row, bar_cell, counted, folded, make, name_cell, note, sum_of, table_of, unique } from "./elements.js";
import { state } from "./state.js";
import { data, sheet_of, tokens, value_at } from "./data.js";
import { number_cell, stage, update } from "./frame.js";
import { answer_name, percent, predictions } from "./answers.js";

// Says which kinds of token a head counts, or without gates to which it attends, over the queries that reach an answer: in the last
// layer those with a question.
function habit({ layer, head }) {
  const gated = data.all.has("gates"), sheet = sheet_of(gated ? "gates" : "pattern", "value", { ...state, layer, head });
  const rows = counted(sheet?.rows ?? 0).filter((row) => layer < data.layers - 1 || predictions()[row]);
  const kinds = unique(tokens).map((text) => {
    const columns = counted(tokens.length).filter((column) => tokens[column] === text);
    const values = rows.flatMap((row) => columns.map((column) => value_at(sheet, row, column))).filter((value) => value !== null);
    return { text, share: sum_of(values) / (gated ? values.length : rows.length) };
  }).filter(({ share }) => share > (gated ? 0.5 : 0.1)).sort((one, other) => other.share - one.share);
  const words = kinds.slice(0, 4).map(({ text, share }, k) => [k ? ", " : "", answer_name(text), gated ? "" : ` (${percent(share)})`]);
  return [gated ? "counts " : "attends to ", words.length ? words : "no kind of token", kinds.length > 4 ? ` and ${kinds.length - 4} more` : ""];
}

const heads_shown = 16;
function draw_effects() {
  const most = Math.max(...data.effects.map(({ real }) => Math.abs(real))) || 1;
  const row = ({ layer, head, real, predicted, edit }) => acting_row(`effect ${layer} ${head}`, () => update({ layer, head }),
    [name_cell(`layer ${layer}, head ${head}`), bar_cell(real / most), ...[real, predicted].map(number_cell),
      make("td", {}, habit({ layer, head }))], { "aria-current": layer === state.layer && head === state.head, title: edit });
  const table = (some) => table_of(["silenced", "change of the loss", "", "the gradient said", "what it does"], some.map(row), { class: "effects" });
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
