// Colours of values, figures of reasons, and the theme that both follow.
import { clamped, counted, make, once } from "./elements.js";
import { two_sided } from "./data.js";

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
    const inside = clamped(part, 0, 1);
    return Math.round(255 * (inside <= 0.0031308 ? 12.92 * inside : 1.055 * inside ** (1 / 2.4) - 0.055));
  });
}

// Violet over teal to yellow; or blue and orange apart from a neutral middle, which is the page's own darkness.
function colour(scale, t, dark) {
  if (!two_sided(scale)) return { lightness: 0.24 + 0.71 * t, chroma: 0.145, hue: 300 - 195 * t };
  const size = Math.abs(2 * t - 1), hue = t < 0.5 ? 255 : 55;
  return { lightness: dark ? 0.27 + 0.57 * size : 0.975 - 0.43 * size, chroma: 0.17 * size ** 0.9, hue };
}

export function palette(scale) {
  return once(`palette ${scale} ${theme.dark}`, () => counted(256).map((k) => {
    const { lightness, chroma, hue } = colour(scale, k / 255, theme.dark);
    return { rgb: srgb(lightness, chroma, hue), ink: lightness > 0.62 ? "#000" : "#fff" };
  }));
}

// The stop of a value; a range without extent maps to the neutral end (sequential) or middle (diverging). What is no
// number is magenta, which no scale has.
const no_number = { rgb: [255, 0, 200], ink: "#000" };
export function stop_of(scale, value, [low, high]) {
  if (Number.isNaN(value)) return no_number;
  const t = high > low ? share_of(scale, value, [low, high]) : two_sided(scale) ? 0.5 : 0;
  return palette(scale)[Math.round(255 * clamped(t, 0, 1))];
}

// Where a value stands between the ends, and the other way round. What is 0 stands at the low end of a logarithm, and of
// a signed one in the middle, with all that is four decades below the ends.
export const decades = 4;
export function share_of(scale, value, [low, high]) {
  if (scale === "logarithmic") return Math.log(Math.max(value, low) / low) / Math.log(high / low);
  if (scale !== "signed") return (value - low) / (high - low);
  const size = value ? Math.max(0, 1 + Math.log10(Math.abs(value) / high) / decades) : 0;
  return 0.5 + 0.5 * Math.sign(value) * size;
}
export function value_of_share(scale, t, [low, high]) {
  if (scale === "logarithmic" && low > 0) return low * (high / low) ** t;
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
// A tile of 8 x 8 for each reason, as strokes: reasons are told apart without their colours too.
const figures = ["M0 2H8M0 6H8", "M1.5 2H2.5M5.5 6H6.5", "M2 0V8M6 0V8", "M0 0L8 8M-2 6L2 10M6 -2L10 2", "M0 4H8M4 0V8",
                 "M2 2H6V6H2Z", "M0 6L4 2L8 6", "M0 0L8 8M8 0L0 8"];
const hatching = "M0 8L8 0M-2 2L2 -2M6 10L10 6";

// Pairs that the mask hides look the same in every picture; what is not zero needs no figure.
export function look_of(reasons, index) {
  const { kind } = reasons[index];
  if (index === 0) return { ground: theme.page, line: theme.page, figure: "" };
  if (kind === "masked") return { ground: theme.masked, line: theme.hatch, figure: hatching };
  const order = reasons.filter((reason, k) => k > 0 && k < index && reason.kind !== "masked").length;
  const line = theme.lines[order % theme.lines.length];
  return { ground: theme.page, tint: 0.22, line, figure: figures[order % figures.length] };
}

export function tile_of(context, { ground, line, figure, tint = 0 }) {
  const ratio = devicePixelRatio || 1, tile = document.createElement("canvas");
  tile.width = tile.height = Math.round(8 * ratio);
  const pen = tile.getContext("2d");
  pen.fillStyle = ground;
  pen.fillRect(0, 0, tile.width, tile.height);
  pen.globalAlpha = tint;
  pen.fillStyle = line;
  pen.fillRect(0, 0, tile.width, tile.height);
  pen.globalAlpha = 1;
  pen.scale(tile.width / 8, tile.width / 8);
  pen.strokeStyle = line;
  pen.lineWidth = figure === figures[1] ? 2 : 1;
  pen.stroke(new Path2D(figure));
  return context.createPattern(tile, "repeat");
}

export const masked_tile = (context) => tile_of(context, { ground: theme.masked, line: theme.hatch, figure: hatching });

// A canvas whose width is divided into bands of reasons: a swatch of one, or shares of many.
export function reason_bar(reasons, shares, width, height) {
  const ratio = devicePixelRatio || 1, canvas = make("canvas", { class: "swatch", "aria-hidden": "true" });
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = width + "px";
  const context = canvas.getContext("2d");
  let from = 0;
  shares.forEach((share, index) => {
    if (!share) return;
    context.fillStyle = tile_of(context, look_of(reasons, index));
    context.fillRect(Math.round(from * canvas.width), 0, Math.ceil(share * canvas.width), canvas.height);
    from += share;
  });
  return canvas;
}
