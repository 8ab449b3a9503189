// Curves: charts with scales, and strips over a shared axis.
import { clamped, counted, draw, dress, format, svg_line, svg_text, unique } from "./elements.js";
import { hidden_at, is_row, key_of, longest, short, value_at, word_of } from "./data.js";
import { follow_pointer, shown } from "./frame.js";

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

function mark_across(frame, marks, [low, high]) {
  for (const { value, text } of marks.filter((mark) => mark.value >= low && mark.value <= high)) {
    const y = frame.y_of(value), end = frame.width - frame.right;
    frame.add(svg_line("limit", [frame.left, y], [end, y]), svg_text("tick end", end, y + 13, text));
  }
}

export const dot = (frame, name, index, value, r) =>
  draw("circle", { class: name, cx: frame.x_of(index), cy: frame.y_of(value), r });

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
  for (let index = Math.ceil(from / numbered) * numbered; index < count; index += numbered) {
    frame.add(svg_text("tick middle", frame.x_of(index), y, index));
  }
  frame.add(svg_text("tick end", frame.left - 6, y, word));
}

// Returns a chart over the indices of an axis; the last chart of a column carries the axis.
function strip({ label, values, width, last, labels, word, marks = [], height = 74, reach = reach_of(values) }) {
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

// `moved` returns other numbers for a row, by name.
export function row_strips(container, sheets, row, space = container.clientWidth, moved = () => null) {
  const width = Math.max(240, Math.floor(space)), [{ columns, column_axis }] = sheets, key = key_of(column_axis);
  const count = Math.max(...sheets.map((sheet) => seen_columns(sheet, row)));
  const frames = sheets.map((sheet, index) => {
    const own = row_of(sheet, row).slice(0, count), word = word_of(sheet.column_axis), { marks, column_labels: labels } = sheet;
    const title = sheet.title, label = is_row(sheet) ? title : `${title} of ${word_of(sheet.row_axis).split(" ")[0]} ${row}`;
    return row_strip({ title, label, own, now: moved(sheet.name) ?? own, width, last: index === sheets.length - 1, labels, word, marks });
  });
  container.replaceChildren(...frames.map(({ picture }) => picture));
  for (const frame of frames) follow_pointer(frame.picture, (event) => {
    const column = Math.round(frame.at(event).x);
    return column >= 0 && column < count ? { [key]: column } : null;
  });
  return (at) => frames.forEach((frame) => frame.follow(Math.min(at[key], columns - 1)));
}

// Draws a row's current numbers, with a dash at the model's own number wherever the two differ, and a line at the cursor with the
// value next to it.
export function row_strip({ title, label, now, own, key = -1, width, last, labels, word, marks, height, reach = reach_of([...now, ...own]) }) {
  const words = `${label}: ${now.map(shown).join(" ")}`;
  const frame = strip({ label: words, values: now, width, last, labels, word, marks, height, reach });
  columns(frame, now, key);
  if (now !== own) levels(frame, own, now);
  const line = draw("line", { class: "follow", y1: frame.top - 4, y2: frame.floor }), value = draw("text", { y: 12 });
  const heading = end_of(title, (width - frame.left - 90) / letter_width);
  frame.add(line, svg_text("title", frame.left, 12, heading), value);
  frame.follow = (column) => follow_line({ frame, line, now: value, title: heading,
    x: Math.min(frame.x_of(column), frame.width - frame.right) }, shown(now[column] ?? null));
  return frame;
}
function levels(frame, own, now) {
  const half = half_step(frame), apart = (j) => Math.abs(frame.y_of(own[j]) - frame.y_of(now[j])) > 1;
  const dashes = own.map((value, j) => Number.isFinite(value) && apart(j)
    ? `M${(frame.x_of(j) - half).toFixed(1)} ${frame.y_of(value).toFixed(1)}h${(2 * half).toFixed(1)}` : "");
  frame.add(draw("path", { class: "own-level", d: dashes.join("") }));
}

// The end of a name tells more than its start, as in blocks.0.attention.position.table.
export const letter_width = 7.5;
export const end_of = (text, room) => text.length <= room ? text : "\u2026" + text.slice(1 - Math.floor(room));

// Places are separate: bars, which no line joins.
const half_step = (frame) => Math.min(9, 0.36 * (frame.x_of(1) - frame.x_of(0)));
function columns(frame, values, key) {
  const half = half_step(frame);
  values.forEach((value, j) => {
    const ends = [frame.y_of(value), frame.y_of(0)], y = Math.min(...ends), height = Math.max(1, Math.max(...ends) - y);
    const column = draw("rect", { class: j === key ? "gate turned" : "gate", x: frame.x_of(j) - half, width: 2 * half, y, height });
    if (Number.isFinite(value)) frame.add(column);
  });
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
