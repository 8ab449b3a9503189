// View: what a positional scheme adds to one query's logits, for all heads, next to the scores and the logits.
import {
  clamped, counted, draw, dress, format, make, name_cell, note, on_keys, svg_line, svg_text, table_of
} from "./elements.js";
import { state } from "./state.js";
import { data, letters_of, measured, run_shown, same_numbers, sheet_made, sheet_of, telling, tokens, value_at, word_of } from "./data.js";
import { choose, number_cell, of_selection, place_words, run_words, stage, token_name } from "./frame.js";
import { fitting_cell, map_figure, table_behind, values_readout } from "./map.js";
import { chart, dot, follow_strips, grid, index_axis, point_of, reach_of } from "./curves.js";
import { draw_network, draw_sum, networks } from "./network.js";

const heads_quantities = () =>
  measured.filter((quantity) => quantity.scheme && letters_of(quantity).join(" ") === "h i j");
// The chosen quantity, then the scores and the logits where these are other numbers.
const drawn_names = () => [state.quantity, "scores", "logits"].filter((name, k, names) =>
  !names.slice(0, k).some((other) => name === other || same_numbers(data.all.get(other), data.all.get(name))));

// ---- The row of query i for all heads
// Rows are heads, columns keys: row i of each head's map.
function heads_sheet(name) {
  const of_head = (head) => sheet_of(name, "value", { ...state, head }, state.run);
  const sheets = run_shown().all.has(name) ? counted(run_shown().heads).map(of_head) : [];
  if (!sheets.length || sheets.some((each) => !each || each.rows <= state.i)) return null;
  const [{ columns, title, scale }] = sheets;
  return sheet_made(sheets.length, columns, (head, j) => value_at(sheets[head], state.i, j),
    { row_axis: "h", column_axis: "j", name, title, scale });
}

// Returns the place of key j on the axis, its index or its distance from the query, or the key at place j.
const heads_place = (j) => state.over === "distance" ? state.i - j : j;
function heads_points(sheet, head) {
  const points = counted(sheet.columns).map((j) => ({ x: heads_place(j), y: value_at(sheet, head, j) }));
  return points.filter(({ y }) => Number.isFinite(y)).sort((one, other) => one.x - other.x);
}

// The axis ends at the last key that some head sees.
const last_key = (sheet) => counted(sheet.columns).findLast((j) => counted(sheet.rows).some((head) => value_at(sheet, head, j) !== null)) ?? 0;

const line_height = 15;
function heads_chart(sheet, width) {
  const heads = counted(sheet.rows), curves = heads.map((head) => heads_points(sheet, head));
  const all = curves.flat(), xs = all.length ? all.map(({ x }) => x) : [0], y = reach_of(all.map((point) => point.y));
  const by_key = state.over !== "distance", x = by_key ? [0, last_key(sheet)] : [Math.min(...xs), Math.max(...xs)];
  const height = Math.max(220, heads.length * line_height + 60);
  const axis = by_key ? word_of("j") : "the distance i \u2212 j";
  const label = `${sheet.title} of query ${state.i} over ${axis}, ${sheet.rows} heads`;
  const frame = chart({ label, width, height, right: 118, top: 26, bottom: 40, x: [x[0] - 0.5, x[1] + 0.5], y });
  grid(frame, y);
  heads_axis(frame, sheet, x, by_key);
  const line = draw("line", { class: "follow", y1: frame.top - 4, y2: frame.floor });
  frame.add(svg_text("title", frame.left, 14, sheet.title), line);
  curves.forEach((points, head) => heads_curve(frame, points, head));
  heads_labels(frame, curves);
  frame.follow = (j) => dress(line, { x1: frame.x_of(heads_place(j)), x2: frame.x_of(heads_place(j)) });
  return frame;
}

function heads_axis(frame, sheet, [low, high], by_key) {
  if (by_key) return index_axis(frame, sheet.column_labels, high + 1, word_of("j"));
  const step = frame.x_of(1) - frame.x_of(0), every = step >= 26 ? 1 : Math.ceil(26 / step / 5) * 5;
  for (const at of counted(high - low + 1).map((k) => low + k).filter((distance) => distance % every === 0)) {
    frame.add(svg_text("tick middle", frame.x_of(at), frame.floor + 16, at));
  }
  frame.add(svg_text("tick end", frame.left - 6, frame.floor + 16, "i \u2212 j"));
}

// Dashes distinguish heads without colours; pairs of seven colours and six dashes repeat only after 42 heads.
const head_look = (head) => `curve c${head % 7} d${head % 6}${head === state.head ? " chosen" : ""}`;
function heads_curve(frame, points, head) {
  const path = points.map(({ x, y }, k) =>
    `${k && points[k - 1].x === x - 1 ? "L" : "M"}${point_of(frame, x, y)}`);
  frame.add(draw("path", { class: head_look(head), d: path.join("") }));
  // one point draws no line
  if (points.length === 1) frame.add(dot(frame, `dot c${head % 7}`, points[0].x, points[0].y, 3));
}

// A sample of the head's dashes and its last value end its curve; labels are moved apart.
function heads_labels(frame, curves) {
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
    frame.add(svg_line("leader", [frame.x_of(end.x) + 3, frame.y_of(end.y)], [edge + 8, y]),
      svg_line(head_look(head), [edge + 10, y], [edge + 38, y]),
      svg_text(head === state.head ? "title" : "", edge + 43, y + 4, `h${head}  ${format(end.y, 3)}`));
  }
}

function draw_curves(container, sheets) {
  const across = stage.clientWidth >= 1150 ? sheets.length : 1;
  const width = clamped(Math.floor((stage.clientWidth - 16 * (across - 1)) / across), 300, 900);
  const frames = sheets.map((each) => heads_chart(each, width));
  container.style.gridTemplateColumns = `repeat(${across}, minmax(0, 1fr))`;
  container.replaceChildren(...frames.map(({ picture }, k) => make("div", {}, picture, table_behind(sheets[k]))));
  const last = last_key(sheets[0]);
  return follow_strips(frames, (x) => heads_place(x) >= 0 && heads_place(x) <= last ? { j: heads_place(x) } : null,
    ({ j }) => Math.min(j, last));
}

// Left and right move the key along the axis, up and down the query.
const moves = { ArrowLeft: ["j", -1], ArrowRight: ["j", 1], ArrowUp: ["i", -1], ArrowDown: ["i", 1] };
const press_heads = on_keys((key) => document.activeElement.closest("details") ? undefined : moves[key],
  ([axis, by]) => {
    const side = axis === "j" && state.over === "distance" ? -1 : 1;
    choose({ [axis]: clamped(state[axis] + side * by, 0, tokens.length - 1) });
  });

function heads_table(sheets) {
  const line = (head) => make("tr", { "aria-current": head === state.head },
    name_cell(`head ${head}`), sheets.map((each) => number_cell(value_at(each, head, state.j))));
  return table_of(["at this key", ...sheets.map(({ title }) => title)], counted(sheets[0].rows).map(line),
    { class: "heads" });
}

function draw_heads() {
  const names = drawn_names(), title = make("h3"), told = note();
  const curves = make("div", { class: "curves strips", tabindex: 0, role: "application", "data-focus": "heads",
    onkeydown: press_heads, "aria-label": "rows of all heads: left and right move the key, up and down the query" });
  const table = make("div"), cells = sheet_of(state.quantity, "value", state, state.run);
  stage.append(title, told, curves);
  of_selection(() => {
    const sheets = names.map(heads_sheet).filter(Boolean);
    title.replaceChildren("All heads of query ", token_name(state.i), `, layer ${state.layer}${run_words()}`);
    told.textContent = sheets.length && sheets[0].name === state.quantity
      ? "The addition, next to the scores before it and the logits after all additions. Arrow keys: left and right " +
        "move the key, up and down the query." : `Not recorded for ${place_words()}.`;
    if (!sheets.length) return curves.replaceChildren();
    table.replaceChildren(heads_table(sheets));
    return draw_curves(curves, sheets);
  });
  const figure = cells && map_figure(cells, fitting_cell(cells, Math.min(420, stage.clientWidth), 24));
  stage.append(make("div", { class: "beside" }, make("div", {}, figure), table));
  for (const network of networks()) {
    draw_sum(network);
    draw_network(network);
  }
}

export const heads_view = {
  key: "heads", title: "Heads", group: "Explore", wants: () => heads_quantities().length > 0,
  hint: "Look for heads whose curve bends where no other does: there the learned bias is one head\u2019s own.",
  quantities: heads_quantities, opens_on: () => telling(heads_quantities()),
  controls: () => ["layer", "quantity", "over", "head"],
  readout(at) {
    const sheets = drawn_names().map((name) => sheet_of(name, "value", at, state.run));
    return values_readout(sheets.filter(Boolean), at);
  },
  draw: draw_heads,
};
