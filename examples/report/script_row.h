// Third part of the page's script: the selected query row as curves over the keys and as a list of numbers.
#pragma once

#include <string_view>

namespace whence::report {

inline constexpr std::string_view script_row = R"js(
// ---- DOM helpers
// ---------------------------------------------------------------------------------------------------------------
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value === "boolean") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const escaped = (text) => String(text).replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
const token_name = (tokens, index) => `${index} '${tokens[index]}'`;

// ---- Strips: one small chart per quantity over a shared key axis
// ---------------------------------------------------------------------
const strip = { left: 70, right: 12, top: 20, height: 74 };

// `panels` of one layer and head; returns what follow() needs to move the cursor line without drawing again.
function draw_strips(container, shown_maps, row, width) {
  const step = (width - strip.left - strip.right) / column_count;
  const x_of = (column) => strip.left + (column + 0.5) * step;
  container.replaceChildren();
  const marks = shown_maps.map((map, index) => {
    const last = index === shown_maps.length - 1, total = strip.top + strip.height + (last ? 40 : 8);
    container.insertAdjacentHTML("beforeend", strip_svg(map, row, { width, total, step, x_of, last }));
    const svg = container.lastElementChild;
    return { map, line: svg.querySelector(".follow"), now: svg.querySelector(".now") };
  });
  return { marks, x_of, step };
}

function strip_svg(map, row, { width, total, step, x_of, last }) {
  const points = [];
  for (let column = 0; column < column_count; ++column) points.push(value_at(map, row, column));
  const finite = points.filter(Number.isFinite);
  const low = Math.min(0, ...finite), top_value = Math.max(0, ...finite), high = top_value > low ? top_value : low + 1;
  const bottom = strip.top + strip.height, y_of = (value) => bottom - (value - low) / (high - low) * strip.height;
  const ticks = unique([low, 0, high].filter((tick) => tick === 0 || Math.abs(tick) > 0.12 * (high - low)));
  let svg = `<svg viewBox="0 0 ${width} ${total}" role="img" aria-label="${escaped(map.name)} of query row ${row} over the keys">`;
  for (const tick of ticks) {
    svg += `<line class="grid" x1="${strip.left}" x2="${width - strip.right}" y1="${y_of(tick)}" y2="${y_of(tick)}"/>`;
    svg += `<text class="tick end" x="${strip.left - 6}" y="${y_of(tick) + 4}">${format(tick, 3)}</text>`;
  }
  svg += `<line class="follow" y1="${strip.top - 4}" y2="${bottom}"/>` + trace(points, x_of, y_of);
  svg += `<text x="${strip.left}" y="12" style="font-weight:600">${escaped(map.name)}</text><text class="now" y="12"></text>`;
  return svg + (last ? key_axis(x_of, bottom, step) : "") + "</svg>";
}

// Line and dots, broken where cells are masked; a stem to zero lets single dots be read too.
function trace(points, x_of, y_of) {
  let path = "", dots = "", stems = "", drawing = false;
  points.forEach((value, column) => {
    if (!Number.isFinite(value)) {
      drawing = false;
      return;
    }
    const x = x_of(column).toFixed(1), y = y_of(value).toFixed(1);
    path += (drawing ? "L" : "M") + x + " " + y;
    stems += `M${x} ${y_of(0).toFixed(1)}V${y}`;
    dots += `<circle class="dot" cx="${x}" cy="${y}" r="2.2"/>`;
    drawing = true;
  });
  return `<path class="stem" d="${stems}"/><path class="trace" d="${path}"/>${dots}`;
}

// Tokens as dense as they fit, indices at multiples of five.
function key_axis(x_of, bottom, step) {
  const every = Math.max(1, Math.ceil((longest(column_tokens) * 6.8 + 1) / step)), numbered = Math.ceil(26 / step / 5) * 5;
  let svg = "";
  for (let column = 0; column < column_count; column += every) {
    svg += `<text class="token middle" x="${x_of(column)}" y="${bottom + 16}">${escaped(short(column_tokens[column]))}</text>`;
  }
  for (let column = 0; column < column_count; column += numbered) {
    svg += `<text class="tick middle" x="${x_of(column)}" y="${bottom + 31}">${column}</text>`;
  }
  return svg + `<text class="tick end" x="${strip.left - 6}" y="${bottom + 31}">key j</text>`;
}

// Moves the cursor line to `column` and writes the value beside it, on the side where there is room.
function follow(strips, row, column, width) {
  const x = strips.x_of(column), before = x > width * 0.75;
  for (const { map, line, now } of strips.marks) {
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    now.setAttribute("x", before ? x - 4 : Math.max(x + 4, strip.left + 12 + 8 * map.name.length));
    now.setAttribute("class", before ? "now end" : "now");
    now.textContent = format(value_at(map, row, column));
  }
}

// ---- List: the same row as numbers
// ---------------------------------------------------------------------------------------------------
function draw_list(container, shown_maps, row, choose) {
  const head = make("tr", {}, make("th", { class: "n", scope: "col" }, "key j"), make("th", { scope: "col" }, "token"),
    ...shown_maps.map((map) => make("th", { class: "n", scope: "col" }, map.name)));
  const body = make("tbody");
  for (let column = 0; column < column_count; ++column) {
    const values = shown_maps.map((map) => value_at(map, row, column));
    if (values.every(Number.isNaN)) continue;
    body.append(make("tr", { "data-column": column, onclick: () => choose(column) }, make("td", { class: "n" }, String(column)),
      make("td", { class: "token" }, column_tokens[column]),
      ...values.map((value) => make("td", { class: "n", title: String(value) }, format(value)))));
  }
  container.replaceChildren(make("table", {}, make("thead", {}, head), body));
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
)js";

}  // namespace whence::report
