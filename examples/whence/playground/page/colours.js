// Colours of values and the theme that they follow. The palettes are the engine's (report/colours.cpp).
import { clamped, counted, make } from "./elements.js";
import { state } from "./state.js";

// ---- Theme
const style_of = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const theme = {};
export const system_dark = matchMedia("(prefers-color-scheme: dark)");
export function read_theme() {
  const name = state.theme === "auto" ? system_dark.matches ? "dark" : "light" : state.theme;
  if (document.documentElement.dataset.theme === name) return;
  document.documentElement.dataset.theme = name;
  theme.dark = name === "dark";
  for (const each of ["page", "ink", "soft", "rule", "accent", "hatch", "masked"]) theme[each] = style_of("--" + each);
}

// ---- Palettes
const palettes = {};
export function keep_palettes(texts) {
  for (const [name, text] of Object.entries(texts ?? {})) {
    palettes[name] ??= text.match(/.{6}/g).map((digits) => digits.match(/../g).map((two) => parseInt(two, 16)));
  }
}
export const two_sided = (scale) => scale === "diverging" || scale === "signed";
const palette = (scale) => palettes[!two_sided(scale) ? "sequential" : theme.dark ? "night" : "day"];

// Where a value stands between the ends of its scale: 0 is in the middle of a two-sided one. Of a signed one, as
// gradients are shown, four decades below the ends are told apart.
const decades = 4;
export function share_of(scale, value, [low, high]) {
  if (!(high > low)) return two_sided(scale) ? 0.5 : 0;
  if (scale !== "signed") return clamped((value - low) / (high - low), 0, 1);
  const size = value ? Math.max(0, 1 + Math.log10(Math.abs(value) / high) / decades) : 0;
  return 0.5 + 0.5 * Math.sign(value) * Math.min(1, size);
}
// What is no number is magenta, which no scale has.
export function colour_of(scale, value, range) {
  const colours = palette(scale);
  return Number.isNaN(value) || !colours ? [255, 0, 200] : colours[Math.round(255 * share_of(scale, value, range))];
}

// The ends of the colours, so that equal colours are equal numbers in all layers and heads.
export function range_of(scale, numbers) {
  let low = 0, high = 0;
  for (const value of numbers) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (scale === "unit") return [0, 1];
  return two_sided(scale) ? [-Math.max(-low, high), Math.max(-low, high)] : [low, high];
}

export function paint_bar(context, scale, x, y, width, height) {
  for (const k of counted(width)) {
    context.fillStyle = `rgb(${(palette(scale) ?? [[0, 0, 0]])[Math.round(255 * k / width)] ?? [0, 0, 0]})`;
    context.fillRect(x + k, y, 1, height);
  }
}

// Pairs that the mask hides look the same in every picture.
export function masked_tile(context, ratio) {
  const side = Math.round(8 * ratio), tile = make("canvas", { width: side, height: side }), pen = tile.getContext("2d");
  pen.fillStyle = theme.masked;
  pen.fillRect(0, 0, side, side);
  pen.scale(side / 8, side / 8);
  pen.strokeStyle = theme.hatch;
  pen.stroke(new Path2D("M0 8L8 0M-2 2L2 -2M6 10L10 6"));
  return context.createPattern(tile, "repeat");
}
