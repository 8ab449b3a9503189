// Colours of values, figures of causes, and the theme that both follow.
import { clamped, counted, make, once } from "./elements.js";
import { data, two_sided } from "./data.js";

// ---- Colours
// Returns the 256 colours of a scale, from report/encode.cpp, each with black or white for text on it.
export function palette(scale) {
  const name = two_sided(scale) ? theme.dark ? "night" : "day" : "sequential";
  return once(`palette ${name}`, () => data.palettes[name].match(/.{6}/g).map((digits) => {
    const rgb = digits.match(/../g).map((two) => parseInt(two, 16));
    return { rgb, ink: 0.3 * rgb[0] + 0.59 * rgb[1] + 0.11 * rgb[2] > 128 ? "#000" : "#fff" };
  }));
}

// Returns the colour of a value. A range without extent maps to the neutral end (sequential) or middle (diverging); NaN
// is magenta, which no scale has.
const no_number = { rgb: [255, 0, 200], ink: "#000" };
export function stop_of(scale, value, [low, high]) {
  if (Number.isNaN(value)) return no_number;
  const t = high > low ? share_of(scale, value, [low, high]) : two_sided(scale) ? 0.5 : 0;
  return palette(scale)[Math.round(255 * clamped(t, 0, 1))];
}

// share_of maps a value to 0..1 between the ends, value_of_share back.
// In the middle of a signed scale are zero and all values four decades below the ends.
export const decades = 4;
export function share_of(scale, value, [low, high]) {
  if (scale !== "signed") return (value - low) / (high - low);
  const size = value ? Math.max(0, 1 + Math.log10(Math.abs(value) / high) / decades) : 0;
  return 0.5 + 0.5 * Math.sign(value) * size;
}
export function value_of_share(scale, t, [low, high]) {
  if (scale !== "signed") return low + (high - low) * t;
  return t === 0.5 ? 0 : Math.sign(t - 0.5) * high * 10 ** (decades * (Math.abs(2 * t - 1) - 1));
}

// ---- Theme
const style_of = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const theme = {};
export function read_theme() {
  theme.dark = style_of("--dark") === "1";
  for (const name of ["page", "ink", "soft", "rule", "accent", "hatch", "masked", "mark"]) {
    theme[name] = style_of("--" + name);
  }
  theme.lines = counted(6).map((index) => style_of("--c" + index));
}

// ---- Figures
// A tile of 8 x 8 for each cause, as strokes: causes differ without their colours too.
const figures = ["M0 2H8M0 6H8", "M1.5 2H2.5M5.5 6H6.5", "M2 0V8M6 0V8", "M0 0L8 8M-2 6L2 10M6 -2L10 2", "M0 4H8M4 0V8",
                 "M2 2H6V6H2Z", "M0 6L4 2L8 6", "M0 0L8 8M8 0L0 8"];
const hatching = "M0 8L8 0M-2 2L2 -2M6 10L10 6";

// Pairs that the mask hides look the same in every picture. Entries that are not zero need no figure.
export function look_of(causes, index) {
  const { kind } = causes[index];
  if (index === 0) return { ground: theme.page, line: theme.page, figure: "" };
  if (kind === "masked") return { ground: theme.masked, line: theme.hatch, figure: hatching };
  const order = causes.filter((cause, k) => k > 0 && k < index && cause.kind !== "masked").length;
  const line = theme.lines[order % theme.lines.length];
  return { ground: theme.page, tint: 0.22, line, figure: figures[order % figures.length] };
}

export function tile_of(context, { ground, line, figure, tint = 0 }) {
  const side = Math.round(8 * (devicePixelRatio || 1)), tile = make("canvas", { width: side, height: side });
  const pen = tile.getContext("2d");
  for (const [fillStyle, globalAlpha] of [[ground, 1], [line, tint]]) {
    Object.assign(pen, { fillStyle, globalAlpha });
    pen.fillRect(0, 0, side, side);
  }
  pen.scale(side / 8, side / 8);
  Object.assign(pen, { globalAlpha: 1, strokeStyle: line, lineWidth: figure === figures[1] ? 2 : 1 });
  pen.stroke(new Path2D(figure));
  return context.createPattern(tile, "repeat");
}

export const masked_tile = (context) => tile_of(context, { ground: theme.masked, line: theme.hatch, figure: hatching });

// cause_bar divides a canvas into bands of causes: a swatch of one, or shares of several.
export const one_share = (index) => Array.from({ length: index + 1 }, (_, k) => Number(k === index));
export function cause_bar(causes, shares, width, height) {
  const ratio = devicePixelRatio || 1, canvas = make("canvas", { class: "swatch", "aria-hidden": "true",
    width: Math.round(width * ratio), height: Math.round(height * ratio), style: `width: ${width}px` });
  const context = canvas.getContext("2d");
  let from = 0;
  shares.forEach((share, index) => {
    if (!share) return;
    context.fillStyle = tile_of(context, look_of(causes, index));
    context.fillRect(Math.round(from * canvas.width), 0, Math.ceil(share * canvas.width), canvas.height);
    from += share;
  });
  return canvas;
}
