// Maps of numbers: of pairs of tokens a row for each query and a column for each key; the value beside its gradient.
import { clamped, counted, dress, format, make, on_keys } from "./elements.js";
import { colour_of, masked_tile, paint_bar, range_of, share_of, theme } from "./colours.js";
import { unedited } from "./learners.js";
import { kind_at, numbers_of, place_text, sheet_named } from "./sheets.js";
import { choose, state } from "./state.js";

export const margin = 2;
const bar_height = 17, bar_width = 110;

// What a map shows: the values of a quantity, or how the loss changes with each.
function view_of(look, sheet, part) {
  const scale = part === "value" ? sheet.quantity.scale : "signed";
  const ends = (each) => range_of("", numbers_of(look, each, part) ?? []);
  const range = range_of(scale, sheet.quantity.layers.flatMap(ends));
  return { ...sheet, scale, range, cells: sheet[part] };
}

export const title_of = (name, part) => part === "value" ? name : `dLoss/d${name}`;

// ---- One map: a canvas with its keys and pointer, which paint() paints again
// `sheet_in` a look is what it shows; a selection of one of its numbers is that of `meant` too.
export function map_of(part, focus, sheet_in, meant = {}) {
  const canvas = make("canvas", { tabindex: 0, role: "application", "data-focus": focus });
  const map = { part, sheet_in, meant, canvas };
  const pick = ([row, column]) =>
    choose({ [map.view.row.key]: row, [map.view.column.key]: column, ...meant });
  const move_of = (key) => ({ ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
    PageUp: [-10, 0], PageDown: [10, 0], Home: [0, -1000], End: [0, 1000], Enter: [0, 0] })[key];
  dress(map.canvas, {
    onclick: (event) => map.g && pick(place_under(map, event)),
    onpointermove: (event) => map.g && event.buttons === 1 && event.pointerType === "mouse" &&
      pick(place_under(map, event)),
    onkeydown: on_keys(move_of, (move) => map.g && pick(place_after(map, move))),
  });
  return map;
}
export const map_of_pairs = (index, name, part) =>
  map_of(part, `${index} ${name} ${part}`, (look) => sheet_named(look, name), { quantity: name, part, model: index });

// End goes to the diagonal, where a causal model's keys end.
function place_after({ view: { row, column } }, [down, right]) {
  const [i, j] = [row, column].map(({ key, extent }) => clamped(state[key], 0, extent - 1));
  const to = right === 1000 && row.key === "i" && column.key === "j" ? i : j + right;
  return [clamped(i + down, 0, row.extent - 1), clamped(to, 0, column.extent - 1)];
}

function place_under({ canvas, g, view }, event) {
  const box = canvas.getBoundingClientRect();
  return [clamped(Math.floor((event.clientY - box.top - margin) / g.down), 0, view.row.extent - 1),
    clamped(Math.floor((event.clientX - box.left - margin) / g.across), 0, view.column.extent - 1)];
}

// `room`: how wide it may be; `tall`: how high, where cells need not be square. Whole device pixels keep cells equal.
export function paint(map, learner, room, tall) {
  const { look } = learner, plain = unedited(learner), ratio = devicePixelRatio || 1;
  const view = map.view = view_of(look, map.sheet_in(look), map.part), { row, column } = view;
  const side = (space, count) => clamped(Math.floor((space - 2 * margin) * ratio / count), 1, 16 * ratio) / ratio;
  const across = side(room, column.extent), down = tall ? side(tall, row.extent) : across;
  const width = across * column.extent, height = down * row.extent;
  map.g = { across, down, width, height, ratio };
  const context =
    sized(map.canvas, Math.max(width, bar_width) + 2 * margin, height + 2 * margin + bar_height, ratio);
  dress(map.canvas, { "aria-label": label_of(map, learner) });
  context.fillStyle = theme.soft;
  if (!view.cells) return void context.fillText("no gradient", 8, 20);
  context.translate(margin, margin);
  paint_masked(context, map.g);
  context.imageSmoothingEnabled = false;
  context.drawImage(kept_picture(map, look, view), 0, 0, width, height);
  const before = plain && plain !== look && map.sheet_in(plain);
  if (before) outline(context, map.g, view, view_of(plain, before, map.part));
  mark_selected(context, map);
  label_bar(context, map.g, view);
}

function paint_masked(context, { width, height, ratio }) {
  context.save();
  context.scale(1 / ratio, 1 / ratio);  // its lines are as thick on every screen
  context.fillStyle = masked_tile(context, ratio);
  context.fillRect(0, 0, width * ratio, height * ratio);
  context.restore();
}

export function sized(canvas, width, height, ratio) {
  dress(canvas, { style: `width: ${width}px; height: ${height}px` });
  Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}

const axis_names = { i: "queries", j: "keys" };
function label_of({ view, part }, { index, options: { scheme } }) {
  const [rows, columns] = ["row", "column"].map((role) => {
    const { word, extent } = view[role];
    return `${extent} ${axis_names[word] ?? `${role}s`}`;
  });
  return `${title_of(place_text(view, ["leading"]), part)} of model ${index + 1}, ${scheme}: ${rows} by ${columns}; ` +
    "arrow keys move the selection";
}

// A selection moves nothing but the frames.
function kept_picture(map, look, view) {
  const place = place_text(view, ["leading"]), { kept } = map, dark = theme.dark;
  if (kept?.look === look && kept.place === place && kept.dark === dark) return kept.picture;
  map.kept = { look, place, dark, picture: picture_of(look, view) };
  return map.kept.picture;
}

function picture_of(look, { cells, scale, range, ...sheet }) {
  const width = sheet.column.extent, height = sheet.row.extent;
  const canvas = make("canvas", { width, height }), context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  cells.forEach((value, cell) => {
    const hidden = kind_at(look, sheet, cell) === "masked";
    image.data.set([...colour_of(scale, value, range), hidden ? 0 : 255], 4 * cell);
  });
  context.putImageData(image, 0, 0);
  return canvas;
}

// Round the cells whose colour an edit has moved by a twentieth of the scale or more.
function outline(context, { across, down }, now, before) {
  const rows = now.row.extent, columns = now.column.extent;
  if (!before.cells || before.cells.length !== now.cells.length) return;
  const share = ({ scale, cells }, k) => share_of(scale, cells[k], now.range);
  const moved = Uint8Array.from(now.cells, (_, k) => Math.abs(share(now, k) - share(before, k)) >= 0.05);
  const at = (row, column) => row >= 0 && column >= 0 && column < columns && moved[row * columns + column];
  context.beginPath();
  for (const row of counted(rows + 1)) {
    for (const column of counted(columns + 1)) {
      const here = at(row, column) ? 1 : 0, x = column * across, y = row * down;
      if (here !== (at(row - 1, column) ? 1 : 0)) context.moveTo(x, y), context.lineTo(x + across, y);
      if (here !== (at(row, column - 1) ? 1 : 0)) context.moveTo(x, y), context.lineTo(x, y + down);
    }
  }
  Object.assign(context, { strokeStyle: theme.accent, lineWidth: 1.2 });
  context.stroke();
}

// The selected cell in a frame of two tones that shows on any colour; thin lines lead to it.
function mark_selected(context, { g: { across, down, width, height }, view, meant }) {
  const x = view.column.at * across, y = view.row.at * down;
  if (x < 0 || y < 0 || x >= width || y >= height) return;
  Object.assign(context, { strokeStyle: theme.accent, lineWidth: 1 });
  context.strokeRect(-0.5, y - 0.5, width + 1, down + 1);
  context.strokeRect(x - 0.5, -0.5, across + 1, height + 1);
  const lineWidth = Object.entries(meant).every(([key, value]) => state[key] === value) ? 2 : 1.3;
  for (const [strokeStyle, grow] of [["#fff", 2.5], ["#000", 1]]) {
    Object.assign(context, { strokeStyle, lineWidth });
    context.strokeRect(x - grow, y - grow, across + 2 * grow, down + 2 * grow);
  }
}

// The colours' ends below the map; in the middle of a gradient's scale is 0.
function label_bar(context, { height, ...g }, { scale, range: [low, high] }) {
  const y = height + 13, width = Math.max(g.width, bar_width);
  Object.assign(context, { font: "10.5px system-ui, sans-serif", fillStyle: theme.soft, textBaseline: "alphabetic" });
  const texts = [low, high].map((end) => format(end, 2)), wide = texts.map((text) => context.measureText(text).width);
  context.fillText(texts[0], 0, y);
  context.fillText(texts[1], width - wide[1], y);
  const room = Math.floor(width - wide[0] - wide[1] - 12);
  if (room > 20) paint_bar(context, scale, Math.round(wide[0]) + 6, height + 5, room, 8);
}
