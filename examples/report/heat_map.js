// The heat maps of the page: their values and colours, and the drawing of one with axes, colour bar and cursor.
"use strict";

// ---- Embedded data
const data = JSON.parse(document.getElementById("map-data").textContent);

const bytes_of = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

// `shown` has one bit per cell, or is empty where no cell is masked. `values` has a little-endian float32 for each
// cell that is shown.
function decode(map) {
  const count = map.rows * map.columns;
  const cells = new Float32Array(count).fill(NaN);
  const shown = map.shown ? bytes_of(map.shown) : null;
  const values = new DataView(bytes_of(map.values).buffer);
  let next = 0;
  for (let cell = 0; cell < count; ++cell) {
    if (shown && !(shown[cell >> 3] >> (cell & 7) & 1)) continue;
    cells[cell] = values.getFloat32(next, true);
    next += 4;
  }
  return cells;
}

// Smallest and largest shown value, so that a reader need not guess them from colours.
function extremes(cells) {
  let low = Infinity, high = -Infinity;
  for (const value of cells) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [0, 0];
}

const unique = (list) => [...new Set(list)];
const maps = data.maps.map((map) => {
  const cells = decode(map);
  return { ...map, cells, extremes: extremes(cells), pictures: new Map() };
});
const names = unique(maps.map((map) => map.name));
const layers = unique(maps.map((map) => map.layer)).sort((a, b) => a - b);
const heads = unique(maps.map((map) => map.head)).sort((a, b) => a - b);
const row_count = maps[0].rows, column_count = maps[0].columns;
const find_map = (name, layer, head) =>
  maps.find((map) => map.name === name && map.layer === layer && map.head === head);
const value_at = (map, row, column) => map.cells[row * map.columns + column];

// White space as a token has to be seen.
const visible = (token) =>
  token === "" ? "\u2205" : token.replace(/ /g, "\u2423").replace(/\n/g, "\u21b5").replace(/\t/g, "\u21e5");
const row_tokens = data.rows.map(visible), column_tokens = data.columns.map(visible);

// ---- Numbers
function format(value, digits = 4) {
  if (Number.isNaN(value)) return "masked";
  if (value === 0 || !Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  return size < 1e-3 || size >= 1e6 ? value.toExponential(digits - 1) : String(Number(value.toPrecision(digits)));
}

// Colour range of a map: the page's own, shared by all maps of one name, or fitted to this map.
function range_of(map, fit) {
  if (!fit) return [map.low, map.high];
  const [low, high] = map.extremes, reach = Math.max(Math.abs(low), Math.abs(high));
  return map.scale === "diverging" ? [-reach, reach] : [low, high];
}

// Numbers inside cells must be short: in units of a power of ten that the caption states.
function unit_of(map) {
  const reach = Math.max(Math.abs(map.extremes[0]), Math.abs(map.extremes[1]));
  const power = reach > 0 && Number.isFinite(reach) ? Math.floor(Math.log10(reach)) : 0;
  return power < -1 || power > 2 ? power : 0;
}

// ---- Colours
// Both maps are computed in OKLCH with lightness linear in the value: equal steps look equal, also in grey and to
// colour-blind eyes.
function linear_rgb(lightness, chroma, hue) {
  const a = chroma * Math.cos(hue * Math.PI / 180), b = chroma * Math.sin(hue * Math.PI / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3;
  return [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
          -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
          -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s];
}

// Chroma gives way, never lightness, where the screen cannot show the colour.
function srgb(lightness, chroma, hue) {
  let rgb = linear_rgb(lightness, chroma, hue);
  while (chroma > 0.002 && rgb.some((part) => part < -1e-4 || part > 1.0001)) {
    chroma -= 0.002;
    rgb = linear_rgb(lightness, chroma, hue);
  }
  return rgb.map((part) => {
    const inside = Math.min(1, Math.max(0, part));
    return Math.round(255 * (inside <= 0.0031308 ? 12.92 * inside : 1.055 * inside ** (1 / 2.4) - 0.055));
  });
}

// Violet over teal to yellow; or blue and orange apart from a neutral middle, which is the page's own darkness.
function colour(scale, t, dark) {
  if (scale === "sequential") return { lightness: 0.24 + 0.71 * t, chroma: 0.145, hue: 300 - 195 * t };
  const size = Math.abs(2 * t - 1), hue = t < 0.5 ? 255 : 55;
  return { lightness: dark ? 0.27 + 0.57 * size : 0.975 - 0.43 * size, chroma: 0.17 * size ** 0.9, hue };
}

const palettes = new Map();
function palette(scale, dark) {
  const key = scale + dark;
  if (!palettes.has(key)) {
    const stops = Array.from({ length: 256 }, (_, k) => {
      const { lightness, chroma, hue } = colour(scale, k / 255, dark);
      return { rgb: srgb(lightness, chroma, hue), ink: lightness > 0.62 ? "#000" : "#fff" };
    });
    palettes.set(key, stops);
  }
  return palettes.get(key);
}

// The stop of a value; a range without extent maps to the neutral end (sequential) or middle (diverging).
function stop_of(stops, scale, value, [low, high]) {
  const t = high > low ? (value - low) / (high - low) : scale === "diverging" ? 0.5 : 0;
  return stops[Math.round(255 * Math.min(1, Math.max(0, t)))];
}

// ---- Theme
const style_of = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let theme = {};
function read_theme() {
  theme = { dark: style_of("--dark") === "1" };
  for (const name of ["page", "ink", "soft", "rule", "accent", "hatch", "masked", "mark"]) {
    theme[name] = style_of("--" + name);
  }
}

// ---- Picture
// One pixel per cell, enlarged by the canvas without smoothing. Masked cells stay transparent over the hatching.
function picture(map, fit) {
  const key = fit + "," + theme.dark;
  if (map.pictures.has(key)) return map.pictures.get(key);
  const canvas = document.createElement("canvas");
  canvas.width = map.columns;
  canvas.height = map.rows;
  const context = canvas.getContext("2d"), image = context.createImageData(map.columns, map.rows);
  const stops = palette(map.scale, theme.dark), range = range_of(map, fit);
  map.cells.forEach((value, cell) => {
    if (Number.isNaN(value)) return;
    image.data.set([...stop_of(stops, map.scale, value, range).rgb, 255], 4 * cell);
  });
  context.putImageData(image, 0, 0);
  map.pictures.set(key, canvas);
  return canvas;
}

function hatching(context, ratio) {
  const tile = document.createElement("canvas"), size = Math.round(6 * ratio);
  tile.width = tile.height = size;
  const pen = tile.getContext("2d");
  pen.fillStyle = theme.masked;
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = theme.hatch;
  pen.lineWidth = ratio;
  for (const shift of [-size, 0, size]) {
    pen.beginPath();
    pen.moveTo(shift, size);
    pen.lineTo(shift + size, 0);
    pen.stroke();
  }
  return context.createPattern(tile, "repeat");
}

// ---- Geometry
const mono = (size, weight = "") => `${weight} ${size}px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace`;
const short = (token) => [...token].length > 10 ? [...token].slice(0, 9).join("") + "\u2026" : token;
const longest = (tokens) => Math.max(...tokens.map((token) => [...short(token)].length));

// Margins for tokens and indices around cells of `cell` pixels; without axes (small multiples) there are none.
function geometry(cell, axes) {
  const width = cell * column_count, height = cell * row_count;
  if (!axes) return { cell, width, height, left: 1, top: 1, total_width: width + 2, total_height: height + 2 };
  const font = Math.max(9, Math.min(13, Math.floor(cell * 0.8))), letter = font * 0.602;
  const token_across = longest(column_tokens) * letter, upright = token_across <= 2 * cell - 1;
  const stack = upright && token_across + 0.5 > cell;
  // Where cells are smaller than tokens these stand in two columns (or lines) in turn, so that each has the space of
  // two cells.
  const stagger = font + 1 > cell && longest(row_tokens) <= 3;
  const every = Math.max(1, Math.ceil((font + 1) / (stagger ? 2 * cell : cell)));
  const token_width = longest(row_tokens) * letter;
  const gap = stagger ? 3 : 6;
  const left = Math.ceil(3 + gap + 5.42 * String(row_count - 1).length + token_width * (stagger ? 2 : 1));
  const top = Math.ceil(14 + (upright ? font * (stack ? 2 : 1) : token_across));
  return { cell, width, height, left, top, font, upright, stack, stagger, gap, every, token_width,
           total_width: left + width + 2, total_height: top + height + 40 };
}

// The largest cell with which a panel fits into `space` pixels; whole device pixels keep all cells equal.
function fitting_cell(space, axes) {
  const ratio = devicePixelRatio || 1;
  let cell = 40;
  while (cell > 2 && geometry(cell, axes).total_width > space) cell -= 1 / ratio;
  return Math.max(2, Math.floor(cell * ratio) / ratio);
}

// ---- Painting
// Every k-th token where the cells are smaller than letters, so that labels never touch.
function paint_tokens(context, g) {
  const across = g.upright ? 1 : Math.ceil((g.font + 1) / g.cell);
  for (let row = 0; row < row_count; row += g.every) label_row(context, g, row, theme.ink);
  for (let column = 0; column < column_count; column += across) label_column(context, g, column, theme.ink);
  const down_step = g.cell >= 12 ? 1 : g.cell >= 3 ? 5 : 20;
  const across_step = g.cell >= 22 ? 1 : g.cell >= 12 ? 2 : g.cell >= 5 ? 5 : 20;
  for (let row = 0; row < row_count; row += down_step) number_row(context, g, row, theme.soft);
  for (let column = 0; column < column_count; column += across_step) number_column(context, g, column, theme.soft);
}

function label_row(context, g, row, ink) {
  const y = g.top + (row + 0.5) * g.cell, outer = g.stagger && Math.floor(row / g.every) % 2 === 0;
  context.textBaseline = "middle";
  context.textAlign = "right";
  context.fillStyle = ink;
  context.font = mono(g.font);
  context.fillText(short(row_tokens[row]), g.left - 2 - (outer ? g.token_width : 0), y + 0.5);
}

function number_row(context, g, row, ink) {
  context.textBaseline = "middle";
  context.textAlign = "right";
  context.fillStyle = ink;
  context.font = mono(9);
  context.fillText(row, g.left - 2 - g.gap - g.token_width * (g.stagger ? 2 : 1), g.top + (row + 0.5) * g.cell + 0.5);
}

function label_column(context, g, column, ink) {
  const x = g.left + (column + 0.5) * g.cell;
  context.textBaseline = "middle";
  context.fillStyle = ink;
  context.font = mono(g.font);
  if (g.upright) {
    context.textAlign = "center";
    const raised = g.stack && column % 2 === 0 ? g.font : 0;
    context.fillText(short(column_tokens[column]), x, g.top - 2 - g.font / 2 - raised);
  } else {
    context.save();
    context.translate(x, g.top - 4);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(short(column_tokens[column]), 0, 0.5);
    context.restore();
  }
}

function number_column(context, g, column, ink) {
  context.textBaseline = "middle";
  context.textAlign = "center";
  context.fillStyle = ink;
  context.font = mono(9);
  context.fillText(column, g.left + (column + 0.5) * g.cell, 5.5);
}

function paint_bar(context, g, map, range) {
  const y = g.top + g.height + 8, stops = palette(map.scale, theme.dark), width = Math.min(g.width, 460);
  for (let x = 0; x < width; ++x) {
    context.fillStyle = `rgb(${stops[Math.round(255 * x / Math.max(1, width - 1))].rgb})`;
    context.fillRect(g.left + x, y, 1, 9);
  }
  context.strokeStyle = theme.soft;
  context.lineWidth = 1;
  context.strokeRect(g.left - 0.5, y - 0.5, width + 1, 10);
  const parts = width >= 260 ? 4 : width >= 130 ? 2 : 1;
  context.fillStyle = context.strokeStyle = theme.ink;
  context.font = mono(10);
  context.textBaseline = "top";
  for (let k = 0; k <= parts; ++k) {
    const x = g.left + Math.round(width * k / parts);
    context.textAlign = k === 0 ? "left" : k === parts ? "right" : "center";
    context.fillText(format(range[0] + (range[1] - range[0]) * k / parts, 3), x, y + 15);
    context.fillRect(Math.min(x, g.left + width - 1), y + 9, 1, 4);
  }
}

function paint_numbers(context, g, map, range) {
  const stops = palette(map.scale, theme.dark), unit = 10 ** unit_of(map);
  context.font = mono(Math.min(12, Math.floor((g.cell - 3) / 0.602 / 5)));
  context.textAlign = "center";
  context.textBaseline = "middle";
  map.cells.forEach((value, cell) => {
    if (Number.isNaN(value)) return;
    const number = value / unit;
    // Leading zeros carry nothing here: .98 instead of 0.98 leaves room for a sign.
    const size = Math.abs(number), text = number.toFixed(size >= 99.5 ? 0 : size >= 9.95 ? 1 : 2);
    context.fillStyle = stop_of(stops, map.scale, value, range).ink;
    const x = g.left + (cell % map.columns + 0.5) * g.cell, y = g.top + (Math.floor(cell / map.columns) + 0.5) * g.cell;
    context.fillText(value === 0 ? "0" : text.replace(/^-(0\.00)$/, "$1").replace(/^(-?)0\./, "$1."), x, y);
  });
}

// Everything that does not depend on the cursor, kept so that moving the cursor only copies it.
function paint_base(panel, map, g, fit, numbers) {
  const ratio = devicePixelRatio || 1, base = document.createElement("canvas");
  base.width = panel.canvas.width = Math.round(g.total_width * ratio);
  base.height = panel.canvas.height = Math.round(g.total_height * ratio);
  panel.canvas.style.width = g.total_width + "px";
  panel.canvas.style.height = g.total_height + "px";
  const context = base.getContext("2d");
  context.fillStyle = hatching(context, ratio);
  context.fillRect(g.left * ratio, g.top * ratio, g.width * ratio, g.height * ratio);
  context.scale(ratio, ratio);
  context.imageSmoothingEnabled = false;
  context.drawImage(picture(map, fit), g.left, g.top, g.width, g.height);
  context.strokeStyle = theme.soft;
  context.strokeRect(g.left - 0.5, g.top - 0.5, g.width + 1, g.height + 1);
  const range = range_of(map, fit);
  if (numbers) paint_numbers(context, g, map, range);
  if (g.font) {
    paint_tokens(context, g);
    paint_bar(context, g, map, range);
  }
  Object.assign(panel, { base, map, g });
}

// The cursor: its row and column between thin lines, its cell in a frame of two tones that shows on any colour, its
// tokens marked.
function paint_cursor(panel, row, column) {
  const { canvas, base, g } = panel, context = canvas.getContext("2d"), ratio = devicePixelRatio || 1;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.drawImage(base, 0, 0);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const x = g.left + column * g.cell, y = g.top + row * g.cell;
  const frame = (tone, grow, line) => {
    context.strokeStyle = tone;
    context.lineWidth = line;
    context.strokeRect(x - grow, y - grow, g.cell + 2 * grow, g.cell + 2 * grow);
  };
  if (g.font) {
    context.lineWidth = 1;
    context.strokeStyle = theme.accent;
    context.strokeRect(g.left - 0.5, y - 0.5, g.width + 1, g.cell + 1);
    context.strokeRect(x - 0.5, g.top - 0.5, g.cell + 1, g.height + 1);
    mark_tokens(context, g, row, column, x, y);
  }
  frame("#fff", g.font ? 2.5 : 1.5, 1.5);
  frame("#000", g.font ? 1 : 0.5, 1.5);
}

// The cursor's labels stand on the marker colour, over their neighbours where cells are small.
function mark_tokens(context, g, row, column, x, y) {
  const tall = Math.max(g.cell, g.font + 3);
  const wide = Math.max(g.cell, g.upright ? longest(column_tokens) * g.font * 0.602 + 3 : g.font + 3);
  context.fillStyle = theme.mark;
  context.fillRect(0, y + g.cell / 2 - tall / 2, g.left - 2, tall);
  context.fillRect(x + g.cell / 2 - Math.max(wide, 16) / 2, 0, Math.max(wide, 16), 11);
  context.fillRect(x + g.cell / 2 - wide / 2, 11, wide, g.top - 13);
  for (const label of [label_row, number_row]) label(context, g, row, theme.ink);
  for (const label of [label_column, number_column]) label(context, g, column, theme.ink);
}

// The cell under a pointer event, or null outside of the map.
function cell_at(panel, event) {
  const box = panel.canvas.getBoundingClientRect(), { g } = panel;
  const column = Math.floor((event.clientX - box.left - g.left) / g.cell);
  const row = Math.floor((event.clientY - box.top - g.top) / g.cell);
  return row >= 0 && row < row_count && column >= 0 && column < column_count ? { row, column } : null;
}
