// View of a long text: pools of all its pairs, windows of single numbers in it, and single queries against all keys.
import {
  acting_row, button, clamped, command_code, counted, folded, make, note, once, right_cell, table_of
} from "./elements.js";
import { followers, state } from "./state.js";
import {
  data, decode, extremes_of, hidden_where_none, index_along, key_of, letters_of, looks_of, part_of, places_of,
  quantities, sheet, sheet_made, slice_of, span_of, telling, tokens, value_at, word_of
} from "./data.js";
import { theme } from "./colour.js";
import {
  add_controls, controls, current_quantity, facts_table, number_cell, of_selection, place_words, reading, shown, stage,
  token_name, update
} from "./frame.js";
import { cell_of, fitting_cell, map_figure, place_of, table_behind, text_at, values_readout, write } from "./map.js";
import { follow_strips, followed, path_through, point_of, reach_of, strip, trace } from "./curves.js";

const pools = [{ kind: "maximum", text: "maximum", note: "the largest value of each pool of pairs" },
               { kind: "mean", text: "mean", note: "the mean of the values of each pool of pairs" },
               { kind: "gradient", text: "|gradient|", note: "the largest |dLoss/d| of each pool of pairs" }];
const pool_levels = () => [1, 2, 4, 8].filter((level) => level === 1 || level < data.overview.cells);
const pool_tokens = (level = state.level) => data.overview.cell * level;
const pool_size_words = (level) => `${pool_tokens(level)} \u00d7 ${pool_tokens(level)} pairs`;
add_controls({
  pool: { text: "pool", options: () => pools.map(({ kind, text }) => [kind, text]) },
  level: { text: "of", options: () => pool_levels().map((level) => [level, pool_size_words(level)]) },
  log: { text: "logarithmic colours", check: true },
});

// ---- Pools
// Counts the unmasked pairs of a pool.
function pairs_in(row, column) {
  const { cell, tokens: all } = data.overview;
  const [rows, columns] = [row, column].map((index) => clamped(all - index * cell, 0, cell));
  if (!data.causal || column < row) return rows * columns;
  return column === row ? rows * (rows + 1) / 2 : 0;
}

// Merges pools by `level` both ways in a map of `side` by `side`: the largest, or the mean over all pairs.
function coarser(kind, fine, side, level) {
  const columns = Math.ceil(side / level), cells = new Float64Array(columns * columns).fill(NaN), pairs = cells.slice();
  fine.forEach((value, k) => {
    if (Number.isNaN(value)) return;
    const row = Math.floor(k / side), column = k % side, count = pairs_in(row, column);
    const to = Math.floor(row / level) * columns + Math.floor(column / level), first = Number.isNaN(cells[to]);
    if (kind === "mean") cells[to] = (first ? 0 : cells[to]) + count * value;
    else cells[to] = first ? value : Math.max(cells[to], value);
    pairs[to] = (first ? 0 : pairs[to]) + count;
  });
  return kind === "mean" ? cells.map((sum, k) => sum / pairs[k]) : cells;
}

// A linear scale shows only the largest gradients: they are logarithmic; values may be.
const may_be_logarithmic = () => state.pool !== "gradient" && current_quantity()?.scale !== "diverging";
const pool_scale = (kind, { scale }) =>
  kind === "gradient" || (state.log && scale !== "diverging") ? "logarithmic" : scale;

function pool_sheet(kind, at) {
  const quantity = current_quantity(), part = part_of(quantity, at.layer), { level } = state;
  if (!part) return null;
  const slice = slice_of(letters_of(quantity), part.shape, at), { name } = quantity;
  return once(["pool", kind, level, state.log, name, at.layer, slice.offset].join(" "), () => {
    const fine = decode(part, kind).subarray(slice.offset, slice.offset + slice.rows * slice.columns);
    const cells = level === 1 ? fine : coarser(kind, fine, slice.columns, level), side = Math.sqrt(cells.length);
    const of_value = kind !== "gradient", { text, note } = pools.find((pool) => pool.kind === kind);
    return sheet({ ...slice, rows: side, columns: side, cells, hidden: hidden_where_none(cells),
      step: pool_tokens(), row_labels: null, column_labels: null, name, kind, quantity, run: data,
      title: of_value ? `${text} of ${name}` : `|dLoss/d${name}|`, scale: pool_scale(kind, quantity),
      marks: of_value ? quantity.marks : [], note: of_value ? `${note}; ` : note, tells: of_value ? quantity : null,
      shared: () => shared_pool_extremes(kind) });
  });
}

// Extremes over all layers and heads: equal colours are equal numbers.
function shared_pool_extremes(kind) {
  return once(["pool extremes", kind, state.level, state.quantity].join(" "), () =>
    span_of(places_of(state.quantity).map((at) => pool_sheet(kind, at).extremes)));
}

// Returns the first and the last token of a token's pool.
function pool_span(index) {
  const size = pool_tokens(), first = Math.floor(index / size) * size;
  return [first, Math.min(first + size, data.overview.tokens) - 1];
}

function pool_words(at) {
  const range = (index) => pool_span(index).flatMap((end, k) => [k ? " to " : "", token_name(end)]);
  return ["queries ", ...range(at.i), ", keys ", ...range(at.j)];
}

// ---- Windows
const windows_here = () => data.overview.windows.filter(({ layer }) => layer === state.layer);
const probe_in = ({ quantities: held }) => held.find(({ probe }) => probe === current_quantity().probe);
const inside = (index, from, count) => index >= from && index < from + count;

// Returns the window over the cursor, else one that reaches into its pool, or null.
function window_at(at) {
  const [rows, columns] = [pool_span(at.i), pool_span(at.j)], held = windows_here().filter(probe_in);
  const meets = (from, count, [first, last]) => from <= last && from + count > first;
  return held.find(({ i, j, rows: down, columns: right }) => inside(at.i, i, down) && inside(at.j, j, right)) ??
    held.find((each) => meets(each.i, each.rows, rows) && meets(each.j, each.columns, columns)) ?? null;
}

function window_sheet(window, kind, at = state) {
  const quantity = current_quantity(), part = probe_in(window);
  if (part[kind] == null) return null;
  const slice = slice_of(letters_of(quantity), part.shape, at), { i, j, rows, columns } = window;
  const cells = decode(part, kind).subarray(slice.offset, slice.offset + slice.rows * slice.columns);
  return sheet({ ...slice, ...looks_of(quantity, kind), cells, hidden: hidden_where_none(cells),
    row_from: i, column_from: j, row_labels: tokens.slice(i, i + rows), column_labels: tokens.slice(j, j + columns),
    run: data, shared: () => extremes_of(decode(part, kind)) });
}

const window_sheets = (window, at) =>
  ["value", "gradient"].map((kind) => window_sheet(window, kind, at)).filter(Boolean);
const window_words = ({ i, j, rows, columns }) => `queries ${i} to ${i + rows - 1}, keys ${j} to ${j + columns - 1}`;
const command_at = () => `${data.command} --at "i=${state.i} j=${state.j}"`;

function zoom(change) {
  update(change);
  stage.querySelector("canvas").focus({ preventScroll: true });
}

const zoom_out = () => zoom({ zoom: false });
const zoom_to = ({ i, j, rows, columns }) =>
  zoom({ zoom: true, i: clamped(state.i, i, i + rows - 1), j: clamped(state.j, j, j + columns - 1) });

function draw_window(window) {
  const sheets = window_sheets(window, state), across = stage.clientWidth >= 900 ? sheets.length : 1;
  const room = Math.floor((stage.clientWidth - 16 * (across - 1)) / across);
  const fitting = Math.min(...sheets.map((each) => fitting_cell(each, Math.min(room, 640), 40)));
  const cell = state.cell || Math.max(fitting, state.numbers ? 30 : 0);
  controls.cell.input.value = cell;
  const back = button("back to the overview (Escape)", "back", zoom_out);
  const escape = (event) => event.key === "Escape" && zoom_out();
  stage.append(make("h3", {}, `${window_words(window)}, ${place_words()}: ${window.why}`), make("p", {}, back),
    make("div", { class: "panels", style: `--across: ${across}`, onkeydown: escape },
      sheets.map((each) => map_figure(each, cell, { numbers: state.numbers }))));
}

// ---- The map of pools
// All windows are outlined; the first, which are the strongest, have numbers.
const numbered_windows = 9;
function paint_windows(context, g) {
  const scale = g.cell / pool_tokens(), held = windows_here().filter(probe_in);
  const boxes = held.map(({ i, j, rows, columns }) =>
    ({ x: g.left + j * scale, y: g.top + i * scale, width: columns * scale, height: rows * scale }));
  context.lineWidth = 1;
  for (const { x, y, width, height } of boxes) {  // in two tones, which show on any colour
    for (const [tone, dashes] of [["#fff", []], ["#000", [2, 2]]]) {
      context.strokeStyle = tone;
      context.setLineDash(dashes);
      context.strokeRect(x + 0.5, y + 0.5, Math.max(2, width - 1), Math.max(2, height - 1));
    }
  }
  context.setLineDash([]);
  boxes.slice(0, numbered_windows).forEach(({ x, y, width }, k) => {
    context.fillStyle = theme.page;
    context.fillRect(x + width + 1, y - 6, 10, 12);
    write(context, k + 1, x + width + 6, y + 0.5, { font: 11, ink: theme.ink });
  });
}

function draw_pools() {
  const shown_pool = pool_sheet(state.pool, state), told = make("div", { class: "told", role: "status" });
  if (!shown_pool) return stage.append(note(`Not recorded for ${place_words()}.`));
  const open = () => {
    const window = window_at(state);
    if (window) zoom_to(window);
  };
  const room = Math.min(760, Math.max(300, stage.clientWidth - 340)), cell = fitting_cell(shown_pool, room, 24);
  const figure = map_figure(shown_pool, cell, { open, over: paint_windows });
  stage.append(make("div", { class: "beside" }, figure, make("div", {}, told, strongest_pools(), windows_table())));
  of_selection(() => told.replaceChildren(...pool_card(open)));
}

// Describes the pool under the cursor, and the way to its single numbers.
function pool_card(open) {
  const value_of = (of_pool) => value_at(of_pool, ...Object.values(cell_of(of_pool, state)));
  const facts = pools.map(({ kind, text }) => [text, value_of(pool_sheet(kind, state))]);
  const window = window_at(state);
  const way = window
    ? make("p", {}, button("open its window (Enter)", "open", open), ` ${window_words(window)}: ${window.why}`)
    : note("No window of single numbers is here. The command for one: ", command_code(command_at()));
  return [make("h4", {}, pool_words(state)), facts_table("of these pairs", "", facts, { class: "pools" }), way];
}

const most_pools = 20;
function strongest_pools() {
  const from = pool_sheet(state.pool, state), order = counted(from.cells.length).filter((k) => !from.hidden[k]);
  order.sort((one, other) => Math.abs(from.cells[other]) - Math.abs(from.cells[one]));
  const line = (k) => {
    const place = place_of(from, { row: Math.floor(k / from.columns), column: k % from.columns });
    return acting_row(`pool ${k}`, () => update(place), [
      ...[place.i, place.j].map((index) => right_cell(pool_span(index).join("\u2013"))), number_cell(from.cells[k])]);
  };
  return folded(`the ${most_pools} strongest pools`, () => table_of(["queries", "keys", from.title],
    order.slice(0, most_pools).map(line), { class: "jumps strongest" }));
}

function windows_table() {
  const held = windows_here().filter(probe_in);
  const line = (window, k) => acting_row(`window ${k}`, () => update({ i: window.i, j: window.j }),
    [right_cell(k + 1), make("td", {}, window_words(window)), make("td", {}, window.why)]);
  return folded(`${held.length} windows of single numbers in this layer`, () =>
    table_of(["", "window", "why"], held.map(line), { class: "jumps windows" }));
}

// ---- One query against all keys
// If keys are closer than pixels, draws a line from each pixel's smallest value to its largest.
function trace_thinned(frame, values) {
  const pixels = Math.floor(frame.x_of(values.length - 1) - frame.x_of(0)) + 1;
  if (values.length <= pixels) return trace(frame, values, "trace", false);
  frame.add(path_through("trace", counted(pixels).map((pixel) => {
    const [from, to] = [pixel, pixel + 1].map((each) => Math.floor(each * values.length / pixels));
    const finite = values.slice(from, to).filter(Number.isFinite), middle = (from + to - 1) / 2;
    if (!finite.length) return "";
    return `${point_of(frame, middle, Math.max(...finite))}V${frame.y_of(Math.min(...finite)).toFixed(1)}`;
  })));
}

// Returns the rows of all heads, or of the selected channel.
function rows_of_strip(part, kind) {
  const numbers = decode(part, kind), keys = part.shape.at(-1), letter = letters_of(current_quantity())[0];
  const all = counted(numbers.length / keys).filter((index) => letter === "h" || index === state[key_of(letter)]);
  const seen = (value) => Number.isNaN(value) ? null : value;
  const chosen = letter === "h" ? index_along(letter, all.length, state) : state[key_of(letter)];
  return all.map((index) => ({ name: `${word_of(letter)} ${index}`, chosen: index === chosen,
    values: Array.from(numbers.subarray(index * keys, (index + 1) * keys), seen) }));
}

function draw_strip(of_query, kind) {
  const part = probe_in(of_query);
  if (part?.[kind] == null) return;
  const rows = rows_of_strip(part, kind), { name } = current_quantity(), width = Math.max(300, stage.clientWidth - 10);
  const title = `${kind === "value" ? name : `dLoss/d${name}`} of query `;
  const reach = span_of(rows.map(({ values }) => reach_of(values))), keys = rows[0].values.length;
  const frames = rows.map((row, k) => strip_of_head(row, { reach, width, last: k === rows.length - 1 }));
  const behind = sheet_made(keys, rows.length, (j, k) => rows[k].values[j], { row_axis: "j", column_axis: "h",
    title: `${name} of query ${of_query.i}`, column_labels: rows.map((row) => row.name) });
  const head = make("h3", {}, title, token_name(of_query.i), ` against all keys, layer ${state.layer}`);
  stage.append(make("section", { class: "whole-row" }, head,
    make("div", { class: "strips" }, frames.map(({ picture }) => picture)), table_behind(behind)));
  followers.push(follow_strips(frames, (j) => ({ i: of_query.i, j: clamped(j, 0, keys - 1) }),
    (at) => Math.min(at.j, keys - 1), update));
}

function strip_of_head({ name, chosen, values }, { reach, width, last }) {
  const title = chosen ? `${name} (selected)` : name;
  const frame = strip({ label: `${name} over all keys`, values, width, last, labels: null, word: word_of("j"),
    height: 46, reach });
  trace_thinned(frame, values);
  return followed(frame, title, chosen ? "title" : "", (j) => shown(values[j]));
}

export const start_of_windows = () => {
  const [first] = data.overview.windows;
  return first ? { layer: first.layer, i: first.i, j: first.j } : {};
};

const zoomed = () => state.zoom ? window_at(state) : null;
export const overview_view = {
  key: "overview", title: "Overview", wants: () => Boolean(data.overview),
  hint: "Look for pools that stand out far from the diagonal: there a query counts, reads or learns over a distance.",
  quantities: () => quantities, opens_on: () => telling(quantities),
  controls: () => ["layer", "head", "quantity", "c", "fit", ...(zoomed() ? ["numbers", "cell"]
    : ["pool", "level", ...(may_be_logarithmic() ? ["log"] : [])])],
  readout(at) {
    const window = zoomed();
    if (window) return values_readout(window_sheets(window, at), at);
    const pool_text = (of_pool) => of_pool ? text_at(of_pool, at) : "\u2013";
    return [`${place_words()}, `, ...pool_words(at), ":",
      ...pools.flatMap(({ kind, text }) => reading(text, pool_text(pool_sheet(kind, at))))];
  },
  draw() {
    const window = zoomed();
    if (window) return draw_window(window);
    state.zoom = false;
    draw_pools();
    const of_layer = data.overview.strips.filter(({ layer }) => layer === state.layer);
    for (const of_query of of_layer) draw_strip(of_query, state.pool === "gradient" ? "gradient" : "value");
  },
};
