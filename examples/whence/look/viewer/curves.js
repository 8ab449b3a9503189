// Curves: charts with scales, strips over a shared axis, histograms, and the row behind them as a list.
import { clamped, counted, draw, format, make, unique } from "./elements.js";
import { hidden_at, is_row, key_of, longest, short, value_at, word_of } from "./data.js";
import { choose, set_hover, shown } from "./frame.js";
import { cell_words } from "./map.js";

// ---- Charts
// A picture with the scales of both axes; what is drawn into it is the caller's. `x` and `y` are [low, high].
export function chart({ label, width, height, x, y, left = 70, right = 12, top = 20, bottom = 8 }) {
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const across = (width - left - right) / (x[1] - x[0] || 1), down = (height - top - bottom) / (y[1] - y[0] || 1);
  return {
    picture, width, left, right, top, floor: height - bottom,
    x_of: (value) => left + (value - x[0]) * across,
    y_of: (value) => height - bottom - (value - y[0]) * down,
    add: (...element) => picture.appendChild(draw(...element)),
    // The values under a pointer, on both scales.
    at: (event) => {
      const box = picture.getBoundingClientRect(), zoom = width / box.width;
      return { x: x[0] + ((event.clientX - box.left) * zoom - left) / across,
               y: y[0] + (height - bottom - (event.clientY - box.top) * zoom) / down };
    },
  };
}

// [low, high] of what is drawn, with zero, and never without extent.
export function reach_of(values) {
  const finite = Array.from(values).filter(Number.isFinite);
  const low = Math.min(0, ...finite), high = Math.max(0, ...finite);
  return high > low ? [low, high] : [low, low + 1];
}

// Lines across at the ends and at zero, where they do not touch.
export function grid(frame, [low, high]) {
  for (const tick of unique([low, 0, high].filter((end) => end === 0 || Math.abs(end) > 0.12 * (high - low)))) {
    const y = frame.y_of(tick);
    frame.add("line", { class: "grid", x1: frame.left, x2: frame.width - frame.right, y1: y, y2: y });
    frame.add("text", { class: "tick end", x: frame.left - 6, y: y + 4 }, format(tick, 3));
  }
}

function mark_across(frame, marks, [low, high]) {
  for (const { value, text } of marks.filter((mark) => mark.value >= low && mark.value <= high)) {
    const y = frame.y_of(value);
    frame.add("line", { class: "limit", x1: frame.left, x2: frame.width - frame.right, y1: y, y2: y });
    frame.add("text", { class: "tick end", x: frame.width - frame.right, y: y + 13 }, text);
  }
}

// A line, broken where there is no value, with dots that can be read one by one.
export function trace(frame, values, name = "trace", dots = true) {
  let path = "", drawing = false;
  values.forEach((value, index) => {
    if (Number.isFinite(value)) {
      path += `${drawing ? "L" : "M"}${frame.x_of(index).toFixed(1)} ${frame.y_of(value).toFixed(1)}`;
      if (dots) frame.add("circle", { class: "dot", cx: frame.x_of(index), cy: frame.y_of(value), r: 2.2 });
    }
    drawing = Number.isFinite(value);
  });
  frame.add("path", { class: name, d: path });
}

// Labels as dense as they fit, indices at multiples of five.
export function index_axis(frame, labels, count, word) {
  const step = frame.x_of(1) - frame.x_of(0), every = Math.max(1, Math.ceil((longest(labels) * 6.8 + 1) / step));
  const room = Math.max(26, 7.2 * String(count).length + 8);
  const numbered = step >= room ? 1 : Math.ceil(room / step / 5) * 5;
  for (let index = 0; labels && index < count; index += every) {
    frame.add("text", { class: "token middle", x: frame.x_of(index), y: frame.floor + 16 }, short(labels[index] ?? ""));
  }
  for (let index = 0; index < count; index += numbered) {
    frame.add("text", { class: "tick middle", x: frame.x_of(index), y: frame.floor + (labels ? 31 : 16) }, index);
  }
  frame.add("text", { class: "tick end", x: frame.left - 6, y: frame.floor + (labels ? 31 : 16) }, word);
}

// A chart over the indices of an axis; the last of a column of charts carries the axis.
export function strip({ label, values, width, last, labels, word, marks = [], height = 74, reach = reach_of(values) }) {
  const bottom = last ? labels ? 40 : 26 : 8;
  const frame = chart({ label, width, height: 20 + height + bottom, bottom, x: [-0.5, values.length - 0.5], y: reach });
  grid(frame, reach);
  mark_across(frame, marks, reach);
  if (last) index_axis(frame, labels, values.length, word);
  return frame;
}

// ---- The selected row of sheets that share their axes, as curves under each other
export const row_of = (sheet, row) => Array.from({ length: sheet.columns }, (_, column) =>
  hidden_at(sheet, row, column) ? NaN : value_at(sheet, row, column));

export function row_strips(container, sheets, row, space = container.clientWidth) {
  const width = Math.max(240, Math.floor(space)), key = key_of(sheets[0].column_axis);
  const frames = sheets.map((sheet, index) => row_strip(sheet, row, width, index === sheets.length - 1));
  container.replaceChildren(...frames.map((frame) => frame.picture));
  const column_at = (event) => Math.round(frames[0].at(event).x);
  container.onpointermove = (event) => {
    const column = column_at(event);
    set_hover(column >= 0 && column < sheets[0].columns ? { [key]: column } : null);
  };
  container.onpointerleave = () => set_hover(null);
  container.onclick = (event) => choose({ [key]: clamped(column_at(event), 0, sheets[0].columns - 1) });
  return (at) => frames.forEach((frame) => frame.follow(Math.min(at[key], sheets[0].columns - 1)));
}

function row_strip(sheet, row, width, last) {
  const word = word_of(sheet.column_axis), values = row_of(sheet, row);
  const label = `${sheet.title}, ${is_row(sheet) ? "" : `${word_of(sheet.row_axis)} ${row}, `}over ${word}`;
  const frame = strip({ label, values, width, last, labels: sheet.column_labels, word, marks: sheet.marks });
  stems(frame, values);
  trace(frame, values);
  return followed(frame, end_of(sheet.title, (width - frame.left - 90) / letter_width), "title",
    (column) => hidden_at(sheet, row, column) ? "masked" : shown(values[column]));
}

// With its title, and a line at the column that is pointed at, whose value stands beside it.
export function followed(frame, title, class_of_title, words) {
  const line = frame.add("line", { class: "follow", y1: frame.top - 4, y2: frame.floor });
  frame.add("text", { class: class_of_title, x: frame.left, y: 12 }, title);
  const now = frame.add("text", { class: "now", y: 12 });
  frame.follow = (column) => follow_line({ frame, line, now, x: frame.x_of(column), title }, words(column));
  return frame;
}

// The end of a name tells more than its start: blocks.0.attention.position.table.
export const letter_width = 7.5;
export const end_of = (text, room) => text.length <= room ? text : "\u2026" + text.slice(1 - Math.floor(room));

// A stem to zero lets single dots be read too.
function stems(frame, values) {
  const zero = frame.y_of(0).toFixed(1);
  const path = values.map((value, index) =>
    Number.isFinite(value) ? `M${frame.x_of(index).toFixed(1)} ${zero}V${frame.y_of(value).toFixed(1)}` : "");
  frame.add("path", { class: "stem", d: path.join("") });
}

// The value stands beside the line, on the side where there is room.
function follow_line({ frame, line, now, x, title }, text) {
  const beside_title = frame.left + 8 + letter_width * title.length;
  const before = x > frame.width * 0.75 && x - 70 > beside_title;
  line.setAttribute("x1", x);
  line.setAttribute("x2", x);
  now.setAttribute("x", before ? x - 4 : clamped(x + 4, beside_title, Math.max(beside_title, frame.width - 75)));
  now.setAttribute("class", before ? "now end" : "now");
  now.textContent = text;
}

// ---- The same row as numbers
export function row_list(container, sheets, row) {
  const [first] = sheets, key = key_of(first.column_axis), labels = first.column_labels;
  const head = make("tr", {}, make("th", { class: "n", scope: "col" }, word_of(first.column_axis)),
    labels ? make("th", { scope: "col" }, "token") : "",
    ...sheets.map((sheet) => make("th", { class: "n", scope: "col" }, sheet.title)));
  const lines = counted(first.columns).filter((column) => !sheets.every((sheet) => hidden_at(sheet, row, column)));
  const cell = (sheet, column) => make("td", { class: "n", title: cell_words(sheet, row, column) },
    hidden_at(sheet, row, column) ? "masked" : shown(value_at(sheet, row, column)));
  const body = make("tbody", {}, ...lines.map((column) =>
    make("tr", { "data-column": column, onclick: () => choose({ [key]: column }) }, make("td", { class: "n" }, column),
      labels ? make("td", {}, make("bdi", { class: "token" }, labels[column] ?? "")) : "",
      ...sheets.map((sheet) => cell(sheet, column)))));
  container.replaceChildren(make("table", {}, make("thead", {}, head), body));
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

// How often each value occurs in a sheet, on the scale of all of them; zeros are counted apart since they would hide
// the rest.
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
    frame.add("rect", { class: "bin", x, y, width: Math.max(1, next - x - 0.5), height: frame.floor - y });
  });
  frame.add("line", { class: "grid", x1: frame.left, x2: width - frame.right, y1: frame.floor, y2: frame.floor });
  for (const { value, text } of sheet.marks.filter((mark) => mark.value >= range[0] && mark.value <= range[1])) {
    const x = frame.x_of(value);
    frame.add("line", { class: "limit", x1: x, x2: x, y1: frame.top, y2: frame.floor });
    frame.add("text", { class: "tick end", x: x - 3, y: frame.top + 8 }, text);
  }
  frame.add("text", { class: "title", x: 0, y: 12 }, selected ? `${name} (selected)` : name);
  frame.add("text", { class: "tick", x: 0, y: 27 }, words);
  frame.add("text", { class: "tick end", x: frame.left - 4, y: frame.top + 8 }, most);
  frame.add("text", { class: "tick", x: frame.left, y: frame.floor + 14 }, ends[0]);
  frame.add("text", { class: "tick end", x: width - frame.right, y: frame.floor + 14 }, ends[1]);
  return frame.picture;
}
