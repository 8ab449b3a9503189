// View: what a positional scheme adds to one query's logits, for all heads, beside the scores and the logits.
import { clamped, counted, dress, format, heading, make, table_of } from "./elements.js";
import { state } from "./state.js";
import {
  data, hidden_at, letters_of, measured, run_shown, sheet, sheet_of, tokens, value_at, word_of
} from "./data.js";
import { choose, number_cell, of_selection, place_words, run_words, set_hover, stage, token_name } from "./frame.js";
import { fitting_cell, map_figure, table_behind, values_readout } from "./map.js";
import { chart, grid, index_axis, reach_of } from "./curves.js";
import { draw_network, draw_sum, networks } from "./network.js";

const lens_quantities = () =>
  measured.filter((quantity) => quantity.scheme && letters_of(quantity).join(" ") === "h i j");

// ---- The row of query i for all heads
// Rows are heads, columns keys: the row of query i of each head's map.
function lens_sheet(name) {
  const of_head = (head) => sheet_of(name, "value", { ...state, head }, state.run);
  const sheets = run_shown().all.has(name) ? counted(run_shown().heads).map(of_head) : [];
  if (!sheets.length || sheets.some((each) => !each || each.rows <= state.i)) return null;
  const [first] = sheets, keys = counted(first.columns), rows = sheets.flatMap((each) => keys.map((j) =>
    [value_at(each, state.i, j), hidden_at(each, state.i, j)]));
  return sheet({ cells: Float64Array.from(rows, ([value]) => value), rows: sheets.length, columns: first.columns,
    hidden: Uint8Array.from(rows, ([, hidden]) => Number(hidden)), row_axis: "h", column_axis: "j", name,
    title: first.title, scale: first.scale });
}

// Where key j stands on the axis: at its index, or at its distance from the query.
const lens_place = (j) => state.over === "distance" ? state.i - j : j;
function lens_points(sheet, head) {
  const keys = counted(sheet.columns).filter((j) => !hidden_at(sheet, head, j));
  const points = keys.map((j) => ({ x: lens_place(j), y: value_at(sheet, head, j) }));
  return points.filter(({ y }) => Number.isFinite(y)).sort((one, other) => one.x - other.x);
}

const line_height = 15;
function lens_chart(sheet, width) {
  const heads = counted(sheet.rows), curves = heads.map((head) => lens_points(sheet, head));
  const all = curves.flat(), xs = all.length ? all.map(({ x }) => x) : [0], y = reach_of(all.map((point) => point.y));
  const by_key = state.over !== "distance", x = by_key ? [0, sheet.columns - 1] : [Math.min(...xs), Math.max(...xs)];
  const height = Math.max(220, heads.length * line_height + 60);
  const axis = by_key ? word_of("j") : "the distance i \u2212 j";
  const label = `${sheet.title} of query ${state.i} over ${axis}, ${sheet.rows} heads`;
  const frame = chart({ label, width, height, right: 118, top: 26, bottom: 40, x: [x[0] - 0.5, x[1] + 0.5], y });
  grid(frame, y);
  lens_axis(frame, sheet, x, by_key);
  frame.add("text", { class: "title", x: frame.left, y: 14 }, sheet.title);
  const line = frame.add("line", { class: "follow", y1: frame.top - 4, y2: frame.floor });
  curves.forEach((points, head) => lens_curve(frame, points, head));
  lens_labels(frame, curves);
  frame.follow = (j) => ["x1", "x2"].forEach((end) => line.setAttribute(end, frame.x_of(lens_place(j))));
  return frame;
}

function lens_axis(frame, sheet, [low, high], by_key) {
  if (by_key) return index_axis(frame, sheet.column_labels, sheet.columns, word_of("j"));
  const step = frame.x_of(1) - frame.x_of(0), every = step >= 26 ? 1 : Math.ceil(26 / step / 5) * 5;
  for (const at of counted(high - low + 1).map((k) => low + k).filter((distance) => distance % every === 0)) {
    frame.add("text", { class: "tick middle", x: frame.x_of(at), y: frame.floor + 16 }, at);
  }
  frame.add("text", { class: "tick end", x: frame.left - 6, y: frame.floor + 16 }, "i \u2212 j");
}

// Dashes tell heads apart without their colours; there are seven colours and six dashes, so that pairs repeat late.
const head_look = (head) => `curve c${head % 7} d${head % 6}${head === state.head ? " chosen" : ""}`;
function lens_curve(frame, points, head) {
  const path = points.map(({ x, y }, k) =>
    `${k && points[k - 1].x === x - 1 ? "L" : "M"}${frame.x_of(x).toFixed(1)} ${frame.y_of(y).toFixed(1)}`);
  frame.add("path", { class: head_look(head), d: path.join("") });
  // a single point is no line
  for (const { x, y } of points.length === 1 ? points : []) {
    frame.add("circle", { class: `dot c${head % 7}`, cx: frame.x_of(x), cy: frame.y_of(y), r: 3 });
  }
}

// At the end of its curve each head has a sample of its dashes and its last value; labels are moved apart.
function lens_labels(frame, curves) {
  const ends = curves.map((points, head) => ({ head, end: points.at(-1) })).filter(({ end }) => end);
  const labels = ends.map(({ head, end }) => ({ head, end, y: frame.y_of(end.y) })).sort((a, b) => a.y - b.y);
  labels.forEach((label, k) => label.y = Math.max(label.y, k ? labels[k - 1].y + line_height : frame.top));
  let limit = frame.floor;
  for (const label of [...labels].reverse()) {
    label.y = Math.min(label.y, limit);
    limit = label.y - line_height;
  }
  const edge = frame.width - frame.right;
  for (const { head, end, y } of labels) {
    frame.add("line", { class: "leader", x1: frame.x_of(end.x) + 3, y1: frame.y_of(end.y), x2: edge + 8, y2: y });
    frame.add("line", { class: head_look(head), x1: edge + 10, x2: edge + 38, y1: y, y2: y });
    frame.add("text", { class: head === state.head ? "title" : "", x: edge + 43, y: y + 4 },
      `h${head}  ${format(end.y, 3)}`);
  }
}

function draw_curves(container, sheets) {
  const across = stage.clientWidth >= 1150 ? sheets.length : 1;
  const width = clamped(Math.floor((stage.clientWidth - 16 * (across - 1)) / across), 300, 900);
  const frames = sheets.map((each) => lens_chart(each, width));
  container.style.gridTemplateColumns = `repeat(${across}, minmax(0, 1fr))`;
  container.replaceChildren(...frames.map(({ picture }, k) => make("div", {}, picture, table_behind(sheets[k]))));
  const key_at = (event, frame) => {
    const x = Math.round(frame.at(event).x), j = state.over === "distance" ? state.i - x : x;
    return j >= 0 && j < sheets[0].columns ? { j } : null;
  };
  for (const frame of frames) {
    dress(frame.picture, { onpointermove: (event) => set_hover(key_at(event, frame)),
      onpointerleave: () => set_hover(null), onclick: (event) => choose(key_at(event, frame) ?? {}) }, []);
  }
  return (at) => frames.forEach((frame) => frame.follow(Math.min(at.j, sheets[0].columns - 1)));
}

// Left and right move the key as the axis has it, up and down the query.
function press_lens(event) {
  const across = { ArrowLeft: -1, ArrowRight: 1 }[event.key], down = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  const other = event.ctrlKey || event.altKey || event.metaKey || event.target.closest("details");
  if (!(across || down) || other) return;
  event.preventDefault();
  const side = state.over === "distance" ? -1 : 1, move = (index, by) => clamped(index + by, 0, tokens.length - 1);
  choose(across ? { j: move(state.j, across * side) } : { i: move(state.i, down) });
}

function heads_table(sheets) {
  const cell = (each, head) => hidden_at(each, head, state.j) ? make("td", { class: "n" }, "masked")
    : number_cell(value_at(each, head, state.j));
  const line = (head) => make("tr", { "aria-current": String(head === state.head) },
    make("th", { scope: "row" }, `head ${head}`), ...sheets.map((each) => cell(each, head)));
  return table_of([heading("at this key"), ...sheets.map(({ title }) => heading(title, true))],
    counted(sheets[0].rows).map(line), { class: "heads" });
}

// ---- Skeleton
function draw_lens() {
  const names = [state.quantity, "scores", "logits"], title = make("h3"), note = make("p", { class: "note" });
  const curves = make("div", { class: "curves strips", tabindex: 0, role: "application", "data-focus": "lens",
    onkeydown: press_lens, "aria-label": "rows of all heads: left and right move the key, up and down the query" });
  const table = make("div"), cells = sheet_of(state.quantity, "value", state, state.run);
  stage.append(title, note, curves);
  of_selection(() => {
    const sheets = names.map(lens_sheet).filter(Boolean);
    title.replaceChildren("All heads of query ", token_name(state.i), `, layer ${state.layer}${run_words()}`);
    note.textContent = sheets.length && sheets[0].name === state.quantity
      ? "What is added, beside the scores before it and the logits after all is added. Arrow keys: left and right " +
        "move the key, up and down the query." : `Not recorded for ${place_words()}.`;
    if (!sheets.length) return curves.replaceChildren();
    table.replaceChildren(heads_table(sheets));
    return draw_curves(curves, sheets);
  });
  const figure = cells ? [map_figure(cells, fitting_cell(cells, Math.min(420, stage.clientWidth), 24))] : [];
  stage.append(make("div", { class: "beside" }, make("div", {}, ...figure), table));
  for (const network of networks()) {
    draw_sum(network);
    draw_network(network);
  }
}

export const lens_view = {
  wants: () => !data.overview && lens_quantities().length > 0,
  key: "lens", title: "Lens",
  hint: "Look for heads whose curve bends where no other does: there the learned bias is one head\u2019s own.",
  quantities: lens_quantities,
  controls: () => ["layer", "quantity", "over", "head"],
  readout(at) {
    const sheets = [state.quantity, "scores", "logits"].map((name) => sheet_of(name, "value", at, state.run));
    return values_readout(sheets.filter(Boolean), at);
  },
  draw: draw_lens,
};
