// Charts with scales, and rows of bars over a shared axis.
import { counted, draw, dress, format, svg_line, svg_text, unique } from "./elements.js";
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
function index_axis(frame, labels, count, word) {
  const step = frame.x_of(1) - frame.x_of(0), every = Math.max(1, Math.ceil((longest(labels) * 6.8 + 1) / step));
  const room = Math.max(26, 7.2 * String(count).length + 8);
  const numbered = step >= room ? 1 : Math.ceil(room / step / 5) * 5;
  const y = frame.floor + (labels ? 31 : 16);
  for (let index = 0; labels && index < count; index += every) {
    frame.add(svg_text("token middle", frame.x_of(index), frame.floor + 16, short(labels[index] ?? "")));
  }
  for (let index = 0; index < count; index += numbered) frame.add(svg_text("tick middle", frame.x_of(index), y, index));
  frame.add(svg_text("tick end", frame.left - 6, y, word));
}

// ---- The selected row of sheets that share their axes, as bars under each other
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

// Draws a row's current numbers, with a dash at the model's own number wherever the two differ, and a line at the cursor, whose
// value is at the right. The last row of a column carries the axis. With `key` what the reader moves is marked: that key
// ("all", or null: none), and all that differs.
export function row_strip({ title, label, now, own, key, width, last, labels, word, marks = [], height = 74, reach }) {
  const y = reach ?? reach_of([...now, ...own]), bottom = !last ? 8 : labels ? 40 : 26;
  const frame = chart({ label: `${label}: ${now.map(shown).join(" ")}`, width, height: 20 + height + bottom, bottom,
    x: [-0.5, now.length - 0.5], y });
  grid(frame, y);
  mark_across(frame, marks, y);
  if (last) index_axis(frame, labels, now.length, word);
  columns(frame, now, (j) => key !== undefined && (key === "all" || j === key || is_apart(now[j], own[j])));
  if (now !== own) levels(frame, own, now);
  const line = draw("line", { class: "follow", y1: frame.top - 4, y2: frame.floor });
  const value = draw("text", { class: "now end", x: width - frame.right, y: 12 });
  frame.add(svg_text("title", frame.left, 12, end_of(title, (width - frame.left - 90) / letter_width)), value);
  frame.follow = (column) => {
    const x = Math.min(frame.x_of(column), frame.width - frame.right);
    frame.add(dress(line, { x1: x, x2: x }));
    value.textContent = shown(now[column] ?? null);
  };
  return frame;
}
function levels(frame, own, now) {
  const half = half_step(frame), apart = (j) => Math.abs(frame.y_of(own[j]) - frame.y_of(now[j])) > 1;
  const dashes = own.map((value, j) => Number.isFinite(value) && apart(j)
    ? `M${(frame.x_of(j) - half).toFixed(1)} ${frame.y_of(value).toFixed(1)}h${(2 * half).toFixed(1)}` : "");
  frame.add(draw("path", { class: "own-level", d: dashes.join("") }));
}

// The end of a name tells more than its start, as in blocks.0.attention.position.table.
const letter_width = 7.5;
export const end_of = (text, room) => text.length <= room ? text : "\u2026" + text.slice(1 - Math.floor(room));

// Places are separate: bars, which no line joins.
const half_step = (frame) => Math.min(9, 0.36 * (frame.x_of(1) - frame.x_of(0)));
// Rounding of f32 is no move.
export const is_apart = (one, other) => Math.abs(one - other) > 1e-4 * Math.max(1, Math.abs(other));
function columns(frame, values, is_turned) {
  const half = half_step(frame);
  values.forEach((value, j) => {
    const ends = [frame.y_of(value), frame.y_of(0)], y = Math.min(...ends), height = Math.max(1, Math.max(...ends) - y);
    const column = draw("rect", { class: is_turned(j) ? "gate turned" : "gate", x: frame.x_of(j) - half, width: 2 * half, y, height });
    if (Number.isFinite(value)) frame.add(column);
  });
}
