// First part of the page's script: decoding of the embedded values, number formats, colour maps.
#pragma once

#include <string_view>

namespace whence::report {

inline constexpr std::string_view script_core = R"js(
"use strict";

// ---- Embedded data
// -------------------------------------------------------------------------------------------------------------
const data = JSON.parse(document.getElementById("map-data").textContent);

const bytes_of = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

// `shown` has one bit per cell, or is empty where no cell is masked; `values` has a little-endian float32 per shown
// cell.
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
const find_map = (name, layer, head) => maps.find((map) => map.name === name && map.layer === layer && map.head === head);
const value_at = (map, row, column) => map.cells[row * map.columns + column];

// White space as a token has to be seen.
const visible = (token) => token === "" ? "\u2205" : token.replace(/ /g, "\u2423").replace(/\n/g, "\u21b5").replace(/\t/g, "\u21e5");
const row_tokens = data.rows.map(visible), column_tokens = data.columns.map(visible);

// ---- Numbers
// -------------------------------------------------------------------------------------------------------------------
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
// -------------------------------------------------------------------------------------------------------------------
// Both maps are computed in OKLCH with lightness linear in the value: equal steps look equal, also in grey and to
// colour-blind eyes.
function linear_rgb(lightness, chroma, hue) {
  const a = chroma * Math.cos(hue * Math.PI / 180), b = chroma * Math.sin(hue * Math.PI / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3;
  return [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s, -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
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
)js";

}  // namespace whence::report
