// Part of the view "heads": the networks that compute a bias, as maps, and one of their numbers as a sum.
import { counted, format, make, name_cell, note, sum_of, table_of } from "./elements.js";
import { state } from "./state.js";
import { decode, extremes_of, part_of, run_named, sheet_made, sheet_of } from "./data.js";
import { check_line, number_cell, of_selection, place_words, single_run, stage, token_name } from "./frame.js";
import { fitting_cell, map_figure, maps_within } from "./map.js";
import { is_left_out, lacking_words, made_of, number_at, number_of, other_run_words } from "./worked.js";

// ---- The networks
// A scheme with a conv_bias (CDAPE) or an mlp_bias (DAPE) has a network; its parameters and probes share a path.
export function networks() {
  const run = run_named(single_run());
  return run.quantities.filter(({ probe }) => /(^|\.)(conv|mlp)_bias$/.test(probe)).flatMap((output) => {
    const parent = output.probe.replace(/(conv|mlp)_bias$/, "");
    const hidden = run.quantities.find(({ probe }) => probe === output.probe.replace(/bias$/, "hidden"));
    const parameter = (name) => run.parameters.find(({ path, layer }) =>
      (layer === state.layer || layer === null) && `.${path}`.endsWith(`.${parent}${name}`));
    const [w1, w2, b2] = ["hidden.weight", "output.weight", "output.bias"].map(parameter);
    return hidden && w1 && w2 && b2 ? [{ run, output, hidden, w1, w2, b2 }] : [];
  });
}

// reach_left: how many of the convolution's k taps are left of key j: the left half, or all but one.
const taps_of = ({ shape }) => shape[3] ?? 1;
const reach_left = ({ output, w2 }) => /pad=left/.test(output.scheme) ? taps_of(w2) - 1 : Math.floor(taps_of(w2) / 2);
const tap_name = (network, tap) => {
  const from = tap - reach_left(network);
  return from ? `j${from < 0 ? "\u2212" : "+"}${Math.abs(from)}` : "j";
};

// Taps are rows and channels columns: networks are wide, and their kernels short.
const taps_sheet = (network, taps, channels, value_of, fields) => weights_sheet(taps, channels, value_of,
  { row_axis: "u", row_labels: taps > 1 ? counted(taps).map((tap) => tap_name(network, tap)) : null, ...fields });
const weights_sheet = (rows, columns, value_of, fields) =>
  sheet_made(rows, columns, value_of, { column_axis: "c", scale: "diverging", name: fields.title, ...fields });

const network_cell = (sheet, room) =>
  Math.min(fitting_cell({ ...sheet, rows: 1 }, room, 18), 8192 / (devicePixelRatio || 1) / sheet.columns);

// One map for each head; a kernel of one tap is a row, and all heads fit into one map.
function kernels_of(network) {
  const { w1, w2 } = network, note = `${w2.path}: what each channel gives to each head`;
  const of_units = `${w1.path}: what each unit reads of the scores of all heads, then of their biases`;
  if (taps_of(w2) === 1) return whole_sheets(network, note, of_units);
  const channels = w2.shape[1], taps = taps_of(w2), weight = decode(w2, "value");
  return counted(w2.shape[0]).map((head) => taps_sheet(network, taps, channels, (tap, c) => weight[(head * channels + c) * taps + tap],
    { title: `W2 of head ${head}`, shared: () => extremes_of(weight),
      note: head ? "" : `${w2.path}: what each tap of each channel gives; colours alike in all heads` }));
}

// Columns are hidden units in both maps: W1, [units, channels], is transposed.
function whole_sheets({ w1, w2 }, note_of_w2, note_of_w1) {
  const [units, channels] = w1.shape, [first, second] = [w1, w2].map((parameter) => decode(parameter, "value"));
  return [weights_sheet(w2.shape[0], units, (head, unit) => second[head * units + unit],
    { row_axis: "h", title: "W2", note: note_of_w2 }),
  weights_sheet(channels, units, (channel, unit) => first[unit * channels + channel],
    { row_axis: "r", title: "W1", note: note_of_w1 })];
}

export function draw_network(network) {
  const space = stage.clientWidth, across = space >= 900 ? 2 : 1, room = Math.floor((space - 16 * (across - 1)) / across);
  stage.append(make("section", {}, make("h3", {}, `The network of ${network.output.scheme}, layer ${state.layer}`),
    make("div", { class: "panels", style: `--across: ${across}` },
      kernels_of(network).map((each) => map_figure(each, network_cell(each, room))))));
}

// ---- One cell as a sum
// Returns b2 of the head and each hidden number's contribution, by the derivative that the engine recorded: the weight
// as used. If none is recorded, returns why.
function cell_sum(network) {
  const { w2, b2, hidden, output } = network, { layer, head, j } = state;
  if (single_run() === "beside") return { lacking: note(other_run_words) };
  const number = number_of(output), value = number && number_at(number, "value");
  if (value === undefined) return { lacking: note(`Not recorded for ${place_words(output)}.`) };
  const terms = made_of(number, hidden);
  if (!terms) {
    const left_out = is_left_out(number_of(hidden)) && lacking_words(number_of(hidden), "from", "dLoss/d");
    return { lacking: left_out || lacking_words(number, "to", "") };
  }
  const { shape } = part_of(hidden, layer), columns = shape.at(-1), of_channel = shape.at(-2) * columns;
  const taps = taps_of(w2), channels = shape.at(-3), given = new Float64Array(taps * channels);
  for (const { number: { index }, product } of terms) {
    const tap = index % columns - j + reach_left(network);
    given[tap * channels + Math.floor(index / of_channel)] = product;
  }
  const sheet = taps_sheet(network, taps, channels, (tap, c) => given[tap * channels + c], { title: "contributions",
    note: `d${output.name}/d${hidden.name} times ${hidden.name}: what each gives` });
  const bias = decode(b2, "value")[head], total = bias + sum_of(sheet.cells);
  const scale = Math.max(...sheet_of(output.name, "value", state).extremes.map(Math.abs)) || 1;
  return { sheet, bias, total, value, difference: Math.abs(total - value) / scale };
}

export function draw_sum(network) {
  const title = make("h3"), picture = make("div"), told = make("div", { class: "told" });
  stage.append(title, make("div", { class: "beside sum" }, picture, told));
  of_selection(() => {
    const sum = cell_sum(network), { name } = network.output;
    title.replaceChildren(`${name} of head ${state.head} at query `, token_name(state.i), ", key ", token_name(state.j),
      ` as a sum${state.run === "difference" ? ", of this run" : ""}`);
    told.hidden = Boolean(sum.lacking);
    if (sum.lacking) return picture.replaceChildren(sum.lacking);
    const room = Math.max(300, stage.clientWidth >= 1000 ? stage.clientWidth - 400 : stage.clientWidth);
    told.replaceChildren(...sum_words(sum));
    return maps_within(picture, () => [map_figure(sum.sheet, network_cell(sum.sheet, room))]);
  });
}

function sum_words({ sheet, bias, total, value, difference }) {
  const equal = difference <= 1e-5;
  const facts = [["b2 of this head", bias], [`sum of ${sheet.cells.length} contributions`, total - bias], ["together", total],
    ["the engine\u2019s number", value]];
  const lines = facts.map(([name, each]) => [name_cell(name), number_cell(each)]);
  return [table_of(["of this pair", ""], lines), check_line(equal, equal ? "They are equal" : "They differ",
    `: ${format(difference, 2)} of the map\u2019s largest number apart (1e-5 allowed).`)];
}
