// Curves: charts with scales, strips over a shared axis, histograms, and the row behind them as a list.
import {
  clamped, counted, draw, dress, format, make, right_cell, svg_line, svg_text, table_of, token_text, unique
} from "./elements.js";
import { hidden_at, is_row, key_of, longest, short, value_at, word_of } from "./data.js";
import { choose, follow_pointer, number_cell, shown } from "./frame.js";

// ---- Charts
// Returns a picture with scales for both axes; the caller draws into it. `x` and `y` are [low, high].
export function chart({ label, width, height, x, y, left = 70, right = 12, top = 20, bottom = 8 }) {
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const across = (width - left - right) / (x[1] - x[0] || 1), down = (height - top - bottom) / (y[1] - y[0] || 1);
  return {
    picture, width, left, right, top, floor: height - bottom,
    x_of: (value) => left + (value - x[0]) * across,
    y_of: (value) => height - bottom - (value - y[0]) * down,
    add: (...elements) => picture.append(...elements),
    // Returns both values under a pointer.
    at: (event) => {
      const box = picture.getBoundingClientRect(), zoom = width / box.width;
      return { x: x[0] + ((event.clientX - box.left) * zoom - left) / across,
               y: y[0] + (height - bottom - (event.clientY - box.top) * zoom) / down };
    },
  };
}

// Returns [low, high] of the values and zero, never without extent.
export function reach_of(values) {
  const finite = Array.from(values).filter(Number.isFinite);
  const low = Math.min(0, ...finite), high = Math.max(0, ...finite);
  return high > low ? [low, high] : [low, low + 1];
}

// Draws lines across at the ends and at zero, where they do not touch.
export function grid(frame, [low, high]) {
  for (const tick of unique([low, 0, high].filter((end) => end === 0 || Math.abs(end) > 0.12 * (high - low)))) {
    const y = frame.y_of(tick);
    frame.add(svg_line("grid", [frame.left, y], [frame.width - frame.right, y]),
      svg_text("tick end", frame.left - 6, y + 4, format(tick, 3)));
  }
}

const marks_within = (marks, [low, high]) => marks.filter(({ value }) => value >= low && value <= high);
function mark_across(frame, marks, reach) {
  for (const { value, text } of marks_within(marks, reach)) {
    const y = frame.y_of(value), end = frame.width - frame.right;
    frame.add(svg_line("limit", [frame.left, y], [end, y]), svg_text("tick end", end, y + 13, text));
  }
}

export const dot = (frame, name, index, value, r) =>
  draw("circle", { class: name, cx: frame.x_of(index), cy: frame.y_of(value), r });
export const point_of = (frame, index, value) => `${frame.x_of(index).toFixed(1)} ${frame.y_of(value).toFixed(1)}`;

// Draws a line, broken where there is no value, with dots that can be read one by one.
export function trace(frame, values, name = "trace", dots = true) {
  const points = values.map((value, index) => Number.isFinite(value) ? point_of(frame, index, value) : "");
  if (dots) frame.add(...counted(values.length).filter((index) => points[index])
    .map((index) => dot(frame, "dot", index, values[index], 2.2)));
  frame.add(path_through(name, points));
}

// An empty point breaks the line.
export const path_through = (name, points) => draw("path",
  { class: name, d: points.map((point, k) => point && `${points[k - 1] ? "L" : "M"}${point}`).join("") });

// Labels are as dense as they fit, indices at multiples of five.
export function index_axis(frame, labels, count, word, from = 0) {
  const step = frame.x_of(1) - frame.x_of(0), every = Math.max(1, Math.ceil((longest(labels) * 6.8 + 1) / step));
  const room = Math.max(26, 7.2 * String(count).length + 8);
  const numbered = step >= room ? 1 : Math.ceil(room / step / 5) * 5;
  const y = frame.floor + (labels ? 31 : 16);
  for (let index = from; labels && index < count; index += every) {
    frame.add(svg_text("token middle", frame.x_of(index), frame.floor + 16, short(labels[index] ?? "")));
  }
  for (let index = Math.ceil(from / numbered) * numbered; index < count; index += numbered) frame.add(svg_text("tick middle", frame.x_of(index), y, index));
  frame.add(svg_text("tick end", frame.left - 6, y, word));
}

// Returns a chart over the indices of an axis; the last chart of a column carries the axis.
export function strip({ label, values, width, last, labels, word, marks = [], height = 74, reach = reach_of(values) }) {
  const bottom = last ? labels ? 40 : 26 : 8;
  const frame = chart({ label, width, height: 20 + height + bottom, bottom, x: [-0.5, values.length - 0.5], y: reach });
  grid(frame, reach);
  mark_across(frame, marks, reach);
  if (last) index_axis(frame, labels, values.length, word);
  return frame;
}

// ---- The selected row of sheets that share their axes, as curves under each other
// Returns the number of columns before a row's masked end, where a picture of the row ends.
export function seen_columns(sheet, row) {
  let count = sheet.columns;
  while (count > 1 && hidden_at(sheet, row, count - 1)) --count;
  return count;
}
export const row_of = (sheet, row) => counted(sheet.columns).map((column) => value_at(sheet, row, column));

export function row_strips(container, sheets, row, space = container.clientWidth) {
  const width = Math.max(240, Math.floor(space)), [{ columns, column_axis }] = sheets, key = key_of(column_axis);
  const count = Math.max(...sheets.map((sheet) => seen_columns(sheet, row)));
  const frames = sheets.map((sheet, index) => row_strip(sheet, row, { width, count, last: index === sheets.length - 1 }));
  container.replaceChildren(...frames.map(({ picture }) => picture));
  return follow_strips(frames, (column) => column >= 0 && column < count ? { [key]: column } : null,
    (at) => Math.min(at[key], columns - 1));
}

// Links charts over one axis: all show the place under the pointer, and a click selects it.
export function follow_strips(frames, place_of, index_of, select = choose) {
  for (const frame of frames) {
    follow_pointer(frame.picture, (event) => place_of(Math.round(frame.at(event).x)), select);
  }
  return (at) => frames.forEach((frame) => frame.follow(index_of(at)));
}

function row_strip(sheet, row, { width, count, last }) {
  const word = word_of(sheet.column_axis), values = row_of(sheet, row).slice(0, count);
  const label = `${sheet.title}, ${is_row(sheet) ? "" : `${word_of(sheet.row_axis)} ${row}, `}over ${word}`;
  const frame = strip({ label, values, width, last, labels: sheet.column_labels, word, marks: sheet.marks });
  if (sheet.column_labels) columns("gate")(frame, values);
  else stems(frame, values), trace(frame, values);
  return followed(frame, end_of(sheet.title, (width - frame.left - 90) / letter_width), "title",
    (column) => shown(values[column] ?? null));
}

// Adds a title, and a line at the column under the pointer with the value next to it.
export function followed(frame, title, class_of_title, words) {
  const line = draw("line", { class: "follow", y1: frame.top - 4, y2: frame.floor }), now = draw("text", { y: 12 });
  frame.add(line, svg_text(class_of_title, frame.left, 12, title), now);
  frame.follow = (column) => follow_line({ frame, line, now, x: Math.min(frame.x_of(column), frame.width - frame.right), title }, words(column));
  return frame;
}

// The end of a name tells more than its start, as in blocks.0.attention.position.table.
export const letter_width = 7.5;
export const end_of = (text, room) => text.length <= room ? text : "\u2026" + text.slice(1 - Math.floor(room));

// Tokens are separate: bars, which no line joins.
export const half_step = (frame) => Math.min(9, 0.36 * (frame.x_of(1) - frame.x_of(0)));
export const columns = (name, is_turned = () => false) => (frame, values) => {
  const half = half_step(frame);
  values.forEach((value, j) => {
    const ends = [frame.y_of(value), frame.y_of(0)], y = Math.min(...ends), height = Math.max(1, Math.max(...ends) - y);
    const column = draw("rect", { class: is_turned(j) ? `${name} turned` : name, x: frame.x_of(j) - half, width: 2 * half, y, height });
    if (Number.isFinite(value)) frame.add(column);
  });
};

// A stem to zero makes single dots readable.
function stems(frame, values) {
  const zero = frame.y_of(0).toFixed(1);
  const path = values.map((value, index) =>
    Number.isFinite(value) ? `M${frame.x_of(index).toFixed(1)} ${zero}V${frame.y_of(value).toFixed(1)}` : "");
  frame.add(draw("path", { class: "stem", d: path.join("") }));
}

// Writes the value next to the line, on the side where there is room.
function follow_line({ frame, line, now, x, title }, text) {
  const beside_title = frame.left + 8 + letter_width * title.length;
  const before = x > frame.width * 0.75 && x - 70 > beside_title;
  dress(line, { x1: x, x2: x });
  dress(now, { x: before ? x - 4 : clamped(x + 4, beside_title, Math.max(beside_title, frame.width - 75)),
    class: before ? "now end" : "now" });
  now.textContent = text;
}

// ---- The same row as numbers
export function row_list(container, sheets, row) {
  const [{ columns, column_axis, column_labels: labels }] = sheets, key = key_of(column_axis);
  const seen = counted(columns).filter((column) => !sheets.every((sheet) => hidden_at(sheet, row, column)));
  const lines = seen.map((column) => make("tr", { "data-column": column, onclick: () => choose({ [key]: column }) },
    right_cell(column), labels && make("td", {}, token_text(labels[column])),
    sheets.map((sheet) => number_cell(value_at(sheet, row, column)))));
  const headings = [word_of(column_axis), ...(labels ? ["token"] : []), ...sheets.map(({ title }) => title)];
  container.replaceChildren(table_of(headings, lines).firstChild);
  return (at) => follow_list(container, at[key]);
}

// Marks the cursor's line of the list and scrolls the list, not the page, to it.
function follow_list(container, column) {
  for (const line of container.querySelectorAll("tr[aria-current]")) line.removeAttribute("aria-current");
  const line = container.querySelector(`tr[data-column="${column}"]`);
  if (!line) return;
  line.setAttribute("aria-current", "true");
  const head = container.querySelector("thead").offsetHeight;
  if (line.offsetTop < container.scrollTop + head) container.scrollTop = line.offsetTop - head;
  const below = line.offsetTop + line.offsetHeight - container.clientHeight;
  if (below > container.scrollTop) container.scrollTop = below;
}

// ---- Distributions
const bin_count = 32;
function bins_of(values, [low, high]) {
  const bins = new Array(bin_count).fill(0);
  const bin_of = (value) => clamped(Math.floor((value - low) / (high - low || 1) * bin_count), 0, bin_count - 1);
  for (const value of values) ++bins[bin_of(value)];
  return bins;
}

// Counts how often each value occurs in a sheet, on the scale of all sheets. Zeros are counted apart, since they would
// hide the rest.
export function histogram(sheet, range, name, width, selected) {
  const values = Array.from(sheet.cells).filter((value, cell) => !sheet.hidden?.[cell] && Number.isFinite(value));
  const other = values.filter((value) => value !== 0), bins = bins_of(other, range), most = Math.max(1, ...bins);
  const words = `${values.length} values, ${values.length - other.length} exactly 0`;
  const ends = range.map((end) => format(end, 3));
  const label = `${name}, ${sheet.title}: ${words}; counts from ${ends.join(" to ")}: ${bins.join(" ")}`;
  const frame = chart({ label, width, height: 132, left: 34, top: 34, bottom: 18, x: range, y: [0, most] });
  const step = (range[1] - range[0]) / bin_count;
  bins.forEach((count, bin) => {
    const x = frame.x_of(range[0] + bin * step), next = frame.x_of(range[0] + (bin + 1) * step), y = frame.y_of(count);
    frame.add(draw("rect", { class: "bin", x, y, width: Math.max(1, next - x - 0.5), height: frame.floor - y }));
  });
  const { left, top, floor } = frame, right = width - frame.right;
  frame.add(svg_line("grid", [left, floor], [right, floor]));
  for (const { value, text } of marks_within(sheet.marks, range)) {
    const x = frame.x_of(value);
    frame.add(svg_line("limit", [x, top], [x, floor]), svg_text("tick end", x - 3, top + 8, text));
  }
  frame.add(svg_text("title", 0, 12, selected ? `${name} (selected)` : name), svg_text("tick", 0, 27, words),
    svg_text("tick end", left - 4, top + 8, most), svg_text("tick", left, floor + 14, ends[0]),
    svg_text("tick end", right, floor + 14, ends[1]));
  return frame.picture;
}
