// The picture of a sheet: cells of colour or of figures, tokens and indices along both axes, a colour bar, a cursor.
import {
  clamped, counted, dress, folded, format, make, name_cell, on_keys, right_cell, table_of, token_text
} from "./elements.js";
import { followers, state } from "./state.js";
import {
  hidden_at, index_along, is_row, kept_along, key_of, labels_of, longest, range_of, short, value_at, word_of
} from "./data.js";
import { equation } from "./equation.js";
import { look_of, masked_tile, palette, share_of, stop_of, theme, tile_of, value_of_share } from "./colour.js";
import { choose, follow_pointer, place_words, reading, shown, token_name } from "./frame.js";

// ---- Picture
// One pixel per cell, enlarged by the canvas without smoothing. Masked cells stay transparent over the hatching.
function picture(sheet, range) {
  const key = range + " " + theme.dark;
  if (sheet.pictures.has(key)) return sheet.pictures.get(key);
  const canvas = make("canvas", { width: sheet.columns, height: sheet.rows });
  const context = canvas.getContext("2d"), image = context.createImageData(sheet.columns, sheet.rows);
  sheet.cells.forEach((value, cell) => {
    if (!sheet.hidden?.[cell]) image.data.set([...stop_of(sheet.scale, value, range).rgb, 255], 4 * cell);
  });
  context.putImageData(image, 0, 0);
  sheet.pictures.set(key, canvas);
  return canvas;
}

function paint_values(context, g, sheet, range) {
  context.imageSmoothingEnabled = false;
  context.drawImage(picture(sheet, range), g.left, g.top, g.width, g.height);
}

// Figures have a size in screen pixels, not in cells, so that areas of one cause read as one.
function paint_causes(context, g, sheet, ratio) {
  const tiles = sheet.run.causes.map((_, index) => tile_of(context, look_of(sheet.run.causes, index)));
  context.save();
  context.setTransform(1, 0, 0, 1, 0, 0);
  const size = Math.ceil(g.cell * ratio), at = (start, index) => Math.round((start + index * g.cell) * ratio);
  sheet.causes.forEach((cause, cell) => {
    context.fillStyle = tiles[cause];
    context.fillRect(at(g.left, cell % sheet.columns), at(g.top, Math.floor(cell / sheet.columns)), size, size);
  });
  context.restore();
}

// ---- Geometry
const small = () => innerWidth <= 700 ? 11 : 9;  // letters must be readable on a phone
const mono = (size) => `${size}px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace`;

// Margins for tokens and indices around cells of `cell` pixels; without axes (small multiples) there are none.
export function geometry(sheet, cell, { axes = true, bar = axes } = {}) {
  const width = cell * sheet.columns, height = cell * sheet.rows;
  if (!axes) return { cell, width, height, left: 1, top: 1, bar, total_width: Math.max(width, bar ? 110 : 0) + 2,
    total_height: height + (bar ? 36 : 2) };
  const font = clamped(Math.floor(cell * 0.8), small(), 13), letter = font * 0.602;
  const wide = longest(sheet.column_labels), token_across = wide * letter, upright = token_across <= 2 * cell - 1;
  const stack = upright && token_across + 0.5 > cell;
  // If cells are smaller than tokens, the tokens alternate between two columns (or lines), so that each has the
  // space of two cells.
  const stagger = font + 1 > cell && wide <= 3, token_width = longest(sheet.row_labels) * letter;
  const every = Math.max(1, Math.ceil((font + 1) / (stagger ? 2 * cell : cell))), gap = stagger ? 3 : 6;
  const digits = String(sheet.rows - 1).length, number_width = 0.602 * small() * digits;
  const left = Math.ceil(3 + gap + number_width + token_width * (stagger ? 2 : 1));
  const right = 2 + Math.max(0, Math.ceil((number_width - cell) / 2));  // for the last column's number
  const top = Math.ceil(5 + small() + (wide ? upright ? font * (stack ? 2 : 1) : token_across : 0));
  return { cell, width, height, left, top, font, wide, upright, stack, stagger, gap, every, token_width, number_width,
           bar, total_width: left + Math.max(width, bar ? 120 : 0) + right,
           total_height: top + height + (bar ? 40 : 2) };
}

// Returns the largest cell with which a sheet fits into `space` both ways; whole device pixels keep all cells equal.
export function fitting_cell(sheet, space, largest = 40) {
  const ratio = devicePixelRatio || 1;
  let cell = largest;
  while (cell > 2 && (geometry(sheet, cell).total_width > space || sheet.rows * cell > space)) cell -= 1 / ratio;
  return Math.max(2, Math.floor(cell * ratio) / ratio);
}

// ---- Labels
// Labels every k-th token where cells are smaller than letters, so that labels never touch.
function paint_labels(context, g, sheet) {
  const along = (count, step, paint, ink) => {
    for (let index = 0; index < count; index += step) paint(context, g, sheet, index, ink);
  };
  along(sheet.rows, g.every, label_row, theme.ink);
  along(sheet.columns, g.upright ? 1 : Math.ceil((g.font + 1) / g.cell), label_column, theme.ink);
  along(sheet.rows, number_step(g.cell, small() + 2), number_row, theme.soft);
  along(sheet.columns, number_step(g.cell, Math.max(22, g.number_width + 5)), number_column, theme.soft);
}

const number_step = (cell, room) => [1, 2, 5, 10, 20, 50].find((step) => step * cell >= room) ?? 100;
function write(context, text, x, y, { font, ink, align = "center", base = "middle" }) {
  Object.assign(context, { font: mono(font), fillStyle: ink, textAlign: align, textBaseline: base, direction: "ltr" });
  context.fillText(text, x, y);
}

const middle_of_row = (g, row) => g.top + (row + 0.5) * g.cell + 0.5;
function label_row(context, g, sheet, row, ink) {
  const outer = g.stagger && Math.floor(row / g.every) % 2 === 0, x = g.left - 2 - (outer ? g.token_width : 0);
  write(context, short(sheet.row_labels?.[row] ?? ""), x, middle_of_row(g, row), { font: g.font, ink, align: "right" });
}

function number_row(context, g, sheet, row, ink) {
  const x = g.left - 2 - g.gap - g.token_width * (g.stagger ? 2 : 1);
  write(context, row, x, middle_of_row(g, row), { font: small(), ink, align: "right" });
}

function label_column(context, g, sheet, column, ink) {
  const x = g.left + (column + 0.5) * g.cell, text = short(sheet.column_labels?.[column] ?? "");
  const raised = g.stack && column % 2 === 0 ? g.font : 0;
  if (g.upright) return write(context, text, x, g.top - 2 - g.font / 2 - raised, { font: g.font, ink });
  context.save();
  context.translate(x, g.top - 4);
  context.rotate(-Math.PI / 2);
  write(context, text, 0, 0.5, { font: g.font, ink, align: "left" });
  context.restore();
}

const number_column = (context, g, sheet, column, ink) =>
  write(context, column, g.left + (column + 0.5) * g.cell, small() / 2 + 1, { font: small(), ink });

function paint_bar(context, g, sheet, range) {
  const y = g.top + g.height + 8, stops = palette(sheet.scale), width = Math.round(clamped(g.width, 110, 460));
  for (let x = 0; x < width; ++x) {
    context.fillStyle = `rgb(${stops[Math.round(255 * x / Math.max(1, width - 1))].rgb})`;
    context.fillRect(g.left + x, y, 1, 9);
  }
  context.strokeStyle = theme.soft;
  context.lineWidth = 1;
  context.strokeRect(g.left - 0.5, y - 0.5, width + 1, 10);
  const parts = width >= 300 ? 4 : width >= 130 ? 2 : 1;
  for (const k of counted(parts + 1)) {
    const x = g.left + Math.round(width * k / parts), align = k === 0 ? "left" : k === parts ? "right" : "center";
    const value = value_of_share(sheet.scale, k / parts, range);
    write(context, format(value, 3), x, y + 15, { font: Math.max(10, small()), ink: theme.ink, align, base: "top" });
    context.fillRect(Math.min(x, g.left + width - 1), y + 9, 1, 4);
  }
  for (const mark of sheet.marks) {
    const x = g.left + width * share_of(sheet.scale, mark.value, range);
    if (!(x >= g.left) || x > g.left + width + 1) continue;
    context.fillStyle = theme.ink;
    context.fillRect(Math.round(x) - 2, y - 4, 3, 14);
  }
}

// ---- Numbers inside cells must be short: in units of a power of ten that the caption states.
function unit_of(sheet) {
  const reach = Math.max(...sheet.extremes.map(Math.abs)), power = reach > 0 ? Math.floor(Math.log10(reach)) : 0;
  return power < -1 || power > 2 ? power : 0;
}

function paint_numbers(context, g, sheet, range) {
  const unit = 10 ** unit_of(sheet), font = Math.min(12, Math.floor((g.cell - 3) / 0.602 / 5));
  sheet.cells.forEach((value, cell) => {
    if (sheet.hidden?.[cell]) return;
    const number = value / unit, size = Math.abs(number);
    // Leading zeros carry nothing here: .98 instead of 0.98 leaves room for a sign.
    const rounded = number.toFixed(size >= 99.5 ? 0 : size >= 9.95 ? 1 : 2);
    const text = rounded.replace(/^-(0\.00)$/, "$1").replace(/^(-?)0\./, "$1.");
    const x = g.left + (cell % sheet.columns + 0.5) * g.cell;
    const y = g.top + (Math.floor(cell / sheet.columns) + 0.5) * g.cell;
    write(context, value === 0 ? "0" : text, x, y, { font, ink: stop_of(sheet.scale, value, range).ink });
  });
}

// ---- Painting
// Paints and keeps everything that does not depend on the cursor: moving the cursor only copies it.
export function paint_base(panel, g, { numbers = false, causes = false, over = null } = {}) {
  const { canvas, sheet } = panel, ratio = devicePixelRatio || 1;
  const size = { width: Math.round(g.total_width * ratio), height: Math.round(g.total_height * ratio) };
  const base = make("canvas", size);
  dress(canvas, { ...size, style: `width: ${g.total_width}px; height: ${g.total_height}px` });
  const context = base.getContext("2d"), range = range_of(sheet, state.fit);
  context.fillStyle = masked_tile(context);
  context.fillRect(g.left * ratio, g.top * ratio, g.width * ratio, g.height * ratio);
  context.scale(ratio, ratio);
  if (causes) paint_causes(context, g, sheet, ratio);
  else paint_values(context, g, sheet, range);
  context.strokeStyle = theme.soft;
  context.strokeRect(g.left - 0.5, g.top - 0.5, g.width + 1, g.height + 1);
  if (numbers) paint_numbers(context, g, sheet, range);
  if (g.font) paint_labels(context, g, sheet);
  if (g.bar) paint_bar(context, g, sheet, range);
  over?.(context, g);
  Object.assign(panel, { base, g });
}

// Paints the cursor: thin lines around its row and column, a frame of two tones (visible on any colour) on its cell,
// marks on its tokens.
export function paint_cursor(panel, at) {
  const { canvas, base, g, sheet } = panel, context = canvas.getContext("2d"), ratio = devicePixelRatio || 1;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.drawImage(base, 0, 0);
  const { row, column } = cell_of(sheet, at);
  if (!within(sheet, row, column)) return;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const x = g.left + column * g.cell, y = g.top + row * g.cell;
  const frame = (strokeStyle, grow) => {
    Object.assign(context, { strokeStyle, lineWidth: 1.5 });
    context.strokeRect(x - grow, y - grow, g.cell + 2 * grow, g.cell + 2 * grow);
  };
  if (g.font) {
    Object.assign(context, { strokeStyle: theme.accent, lineWidth: 1 });
    context.strokeRect(g.left - 0.5, y - 0.5, g.width + 1, g.cell + 1);
    context.strokeRect(x - 0.5, g.top - 0.5, g.cell + 1, g.height + 1);
    mark_labels(context, g, sheet, row, column, x, y);
  }
  frame("#fff", g.font ? 2.5 : 1.5);
  frame("#000", g.font ? 1 : 0.5);
}

// The cursor's labels have the marker colour, and cover their neighbours where cells are small.
function mark_labels(context, g, sheet, row, column, x, y) {
  const tall = Math.max(g.cell, g.font + 3);
  const wide = Math.max(g.cell, g.upright ? g.wide * g.font * 0.602 + 3 : g.font + 3);
  context.fillStyle = theme.mark;
  context.fillRect(0, y + g.cell / 2 - tall / 2, g.left - 2, tall);
  const broad = Math.max(wide, 16, g.number_width + 3);
  context.fillRect(x + g.cell / 2 - broad / 2, 0, broad, small() + 2);
  context.fillRect(x + g.cell / 2 - wide / 2, small() + 2, wide, g.top - small() - 4);
  for (const paint of [label_row, number_row]) paint(context, g, sheet, row, theme.ink);
  for (const paint of [label_column, number_column]) paint(context, g, sheet, column, theme.ink);
}

// ---- Cells
// cell_of returns the cursor's cell in a sheet; place_of returns a cell's part of the state.
export const cell_of = (sheet, at) => ({
  row: is_row(sheet) ? 0 : index_along(sheet.row_axis, sheet.rows, at), column: at[key_of(sheet.column_axis)] });

export const place_of = (sheet, { row, column }) => ({
  ...(is_row(sheet) ? {} : kept_along(sheet.row_axis, sheet.rows, row)), [key_of(sheet.column_axis)]: column });
const within = (sheet, row, column) => row >= 0 && row < sheet.rows && column >= 0 && column < sheet.columns;

// Returns the cell under a pointer event as a place, or null outside the map.
function place_under(panel, event) {
  const box = panel.canvas.getBoundingClientRect(), { g, sheet } = panel;
  const column = Math.floor((event.clientX - box.left - g.left) / g.cell);
  const row = Math.floor((event.clientY - box.top - g.top) / g.cell);
  return within(sheet, row, column) ? place_of(sheet, { row, column }) : null;
}

export function text_at(sheet, at) {
  const { row, column } = cell_of(sheet, at);
  return within(sheet, row, column) ? shown(value_at(sheet, row, column)) : "\u2013";
}

export function cause_at(sheet, at) {
  const { row, column } = cell_of(sheet, at);
  return sheet.causes[row * sheet.columns + column];
}
export const cause_text = (sheet, at) => sheet.run.causes[cause_at(sheet, at)]?.kind ?? "\u2013";

// ---- Panels
// A map with its name, the value under the cursor, a caption, and its numbers as a table for readers who cannot see it.
export function map_figure(sheet, cell, { numbers = false, causes = false, pick } = {}) {
  const value = make("output", { "aria-live": "off" });
  const canvas = make("canvas", { tabindex: 0, role: "application", "data-focus": `map ${sheet.title}`,
    "data-hatched": sheet.hidden?.some(Boolean) || null, "aria-label":
    `${sheet.title}: ${map_label(sheet)}; arrow keys move the cell cursor` });
  const panel = { canvas, sheet };
  paint_base(panel, geometry(sheet, cell, { bar: !causes }), { numbers: numbers && cell >= 16, causes });
  follow_pointer(canvas, (event) => place_under(panel, event), pick);
  canvas.addEventListener("keydown", on_map_keys(sheet, pick));
  followers.push((at) => {
    paint_cursor(panel, at);
    value.textContent = causes ? cause_text(sheet, at) : text_at(sheet, at);
  });
  return make("figure", { class: "panel" }, make("header", {}, make("h3", {}, sheet.title), value),
    caption_of(sheet, numbers), make("div", { class: "frame" }, canvas),
    table_behind(sheet, causes ? (row, column) => cause_text(sheet, place_of(sheet, { row, column })) : undefined));
}

// Puts figures with maps into a container; returns what follows the cursor in them.
export function maps_within(container, figures_of) {
  const from = followers.length;
  container.replaceChildren(...figures_of());
  const follow = followers.splice(from);
  return (at) => follow.forEach((each) => each(at));
}

// A map whose sheet may change: the caller repaints by paint_base() and paint_cursor(). Dragging the pointer selects
// cells too.
export function living_map(focus, pick) {
  const canvas = make("canvas", { tabindex: 0, role: "application", "data-focus": focus }), panel = { canvas };
  const place = (event) => panel.sheet ? place_under(panel, event) : null;
  follow_pointer(canvas, place, pick);
  return Object.assign(panel, { canvas: dress(canvas, {
    onpointermove: (event) => event.buttons === 1 && event.pointerType === "mouse" && place(event) && pick(place(event)),
    onkeydown: (event) => panel.sheet && on_map_keys(panel.sheet, pick)(event) }) });
}
export const map_label = (sheet) => `${sheet.rows} rows, ${word_of(sheet.row_axis)}, by ${sheet.columns} columns, ` +
  word_of(sheet.column_axis);

export function caption_of(sheet, numbers) {
  const [low, high] = sheet.extremes.map((end) => format(end)), unit = unit_of(sheet);
  const axes = is_row(sheet) ? "" : `\u2193 ${word_of(sheet.row_axis)}, `;
  const note = numbers && unit ? `; numbers in units of 1e${unit}` : "";
  const marks = sheet.marks.map((mark) => `, ${mark.text} = ${format(mark.value)}`).join("");
  const range = `${axes}\u2192 ${word_of(sheet.column_axis)}; min ${low}, max ${high}${marks}${note}`;
  const words = [sheet.note, ...(sheet.tells ? words_of(sheet.tells) : [])].filter(Boolean);
  return make("figcaption", {}, words, words.length ? make("br") : "", make("span", { class: "range" }, range));
}
const words_of = ({ caption, equation: text, line }) => [caption, caption && text ? /\?$/.test(caption) ? " " : ": " : "",
  text ? equation(text) : "", line ? ` ${line}` : ""];

// Keys move the selected cell, also into masked cells, which are worth knowing too. End goes to the row's last unmasked
// cell: the diagonal of a causal model.
export function on_map_keys(sheet, pick = choose) {
  const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], PageUp: [-10, 0],
    PageDown: [10, 0], Home: [0, -sheet.columns], End: [0, sheet.columns] };
  return on_keys((key) => moves[key], ([down, right], key) => {
    const now = cell_of(sheet, state), row = clamped(now.row + down, 0, sheet.rows - 1);
    let column = clamped(now.column + right, 0, sheet.columns - 1);
    while (key === "End" && column > 0 && hidden_at(sheet, row, column)) --column;
    pick(place_of(sheet, { row, column }));
  });
}

// The numbers of a sheet, written out when first opened.
export const table_behind = (sheet, words = (row, column) => value_at(sheet, row, column) ?? "masked") =>
  folded("as a table", () => sheet_table(sheet, words));
function sheet_table(sheet, words) {
  const columns = counted(sheet.columns);
  const name = (labels, index) => labels ? [`${index} `, token_text(labels[index])] : [index];
  const headings = columns.map((column) => name(sheet.column_labels, column));
  const lines = counted(sheet.rows).map((row) => [name_cell(name(sheet.row_labels, row)),
    ...columns.map((column) => right_cell(words(row, column)))]);
  const table = table_of([word_of(sheet.row_axis), ...headings], lines);
  return dress(table, { tabindex: 0, role: "region", "aria-label": sheet.title + " as a table" });
}

// ---- The status line: the place, and each value there
export const label_of = (axis, index) => labels_of(axis) ? token_name(index) : String(index);
export function where(sheet, at) {
  const { row, column } = cell_of(sheet, at), along = (axis, index) => [`${word_of(axis)} `, label_of(axis, index)];
  const rows = is_row(sheet) ? [] : [...along(sheet.row_axis, row), ", "];
  return [...rows, ...along(sheet.column_axis, column)];
}

export function values_readout(sheets, at) {
  if (!sheets.length) return [place_words()];
  const readings = sheets.flatMap((each) => reading(each.title, text_at(each, at)));
  return [`${place_words()}, `, ...where(sheets[0], at), ":", ...readings];
}
