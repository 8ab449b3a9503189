// View: the change of the loss that the gradient predicted for each edit, against the real change.
import {
  acting_row, draw, dress, folded, format, make, name_cell, note, right_cell, svg_line, svg_text, table_of, unique
} from "./elements.js";
import { state } from "./state.js";
import { data, run_shown } from "./data.js";
import { number_cell, stage, update } from "./frame.js";
import { chart, reach_of } from "./curves.js";

function draw_edits() {
  const { edits, label } = run_shown(), picture = make("div", { class: "scatter" });
  if (!edits.length) return stage.append(note(`No edits recorded for ${label}.`));
  const mark = (index) => points.forEach((point, k) => point.classList.toggle("chosen", k === index));
  const lines = edits.map(({ edit, predicted, real }, index) => make("tr",
    { tabindex: 0, "data-focus": `edit ${index}`, onfocus: () => mark(index), onpointerenter: () => mark(index) },
    right_cell(index + 1), name_cell(make("code", {}, edit)), [predicted, real, real - predicted].map(number_cell)));
  const table = table_of(["no.", "edit", "predicted", "real", "real \u2212 predicted"], lines, { class: "edits" });
  stage.append(make("h3", {}, "Change of the loss by each edit"), make("div", { class: "beside" }, picture, table));
  const points = scatter(picture, edits);
  points.forEach((point, index) => dress(point, { onclick: () => lines[index].focus() }));
}

// Predicted and real changes span orders of magnitude: both axes are logarithmic on either side of 0, and begin at the
// smallest change.
function logarithmic(values) {
  const sizes = values.map(Math.abs).filter((size) => size > 0 && Number.isFinite(size));
  const least = Math.min(...sizes), decades = 1 + Math.log10(Math.max(...sizes) / least);
  const share = (value) => value ? Math.sign(value) * (1 + Math.log10(Math.abs(value) / least)) / decades : 0;
  const [low, high] = reach_of(values), ticks = unique([low, 0, high, ...(low < 0 ? [-least] : []), least]);
  return sizes.length ? { share, ticks } : { share: () => 0, ticks: [0] };
}

// On the line, predicted and real are equal.
function scatter(container, edits) {
  const { share, ticks } = logarithmic(edits.flatMap(({ predicted, real }) => [predicted, real]));
  const reach = reach_of(ticks.map(share)), width = Math.max(320, container.clientWidth);
  const label = "real over predicted change of the loss; the line is where they are equal";
  const frame = chart({ label, width, height: width * 0.8, right: 40, bottom: 44, x: reach, y: reach });
  for (const tick of ticks) {
    const [x, y] = [frame.x_of(share(tick)), frame.y_of(share(tick))];
    frame.add(svg_line("grid", [frame.left, y], [width - frame.right, y]),
      svg_text("tick end", frame.left - 6, y + 4, format(tick, 3)),
      svg_text("tick middle", x, frame.floor + 17, format(tick, 3)));
  }
  frame.add(svg_line("limit", ...reach.map((end) => [frame.x_of(end), frame.y_of(end)])),
    svg_text("title", frame.left, 12, "real change of the loss (logarithmic)"),
    svg_text("title end", width - frame.right, frame.floor + 34, "predicted change"));
  const taken = [];
  const points = edits.map(({ edit, predicted, real }, index) => {
    const [x, y] = [frame.x_of(share(predicted)), frame.y_of(share(real))];
    let at = { x: x + 7, y: y + 4 };  // a number is to the right of its point, and of other numbers there
    while (taken.some((other) => Math.abs(other.x - at.x) < 16 && Math.abs(other.y - at.y) < 11)) {
      at = { ...at, x: at.x + 16 };
    }
    taken.push(at);
    return draw("g", { class: "edit" },
      draw("title", {}, `${index + 1}: ${edit}: predicted ${predicted}, real ${real}`),
      draw("circle", { cx: x, cy: y, r: 5 }), draw("text", at, index + 1));
  });
  frame.add(...points);
  container.replaceChildren(frame.picture);
  return points;
}

// ---- Heads that are silenced, one at a time
const heads_shown = 16;
function draw_effects() {
  const most = Math.max(...data.effects.map(({ real }) => Math.abs(real))) || 1;
  const bar = (real) => draw("svg", { class: "effect", viewBox: "0 0 240 14", "aria-hidden": "true" }, draw("rect",
    { class: real < 0 ? "minus" : "plus", x: 0, y: 2, height: 10, width: Math.max(1, 240 * Math.abs(real) / most) }));
  const row = ({ layer, head, real, predicted, edit }) => acting_row(`effect ${layer} ${head}`, () => update({ layer, head }),
    [name_cell(`layer ${layer}, head ${head}`), make("td", {}, bar(real)), ...[real, predicted].map(number_cell)],
    { "aria-current": layer === state.layer && head === state.head, title: edit });
  const table = (some) => table_of(["silenced", "change of the loss", "", "the gradient said"], some.map(row), { class: "effects" });
  const sorted = data.effects.length > heads_shown
    ? [...data.effects].sort((one, other) => Math.abs(other.real) - Math.abs(one.real)) : data.effects;
  stage.append(make("h3", {}, "Which heads matter"), note("Each head by itself is silenced: its output is set to 0."),
    table(sorted.slice(0, heads_shown)), sorted.length > heads_shown ? folded(`the ${sorted.length - heads_shown} others`,
      () => table(sorted.slice(heads_shown))) : "");
}

export const edits_view = {
  key: "edits", title: "Edits", group: "Evidence", wants: () => data.edits.length > 0 || data.effects?.length > 0,
  hint: "Look for points far from the line: there the loss bends, and a gradient alone would mislead.",
  controls: () => [],
  readout: () => [`${run_shown().edits.length} edits, ${data.effects?.length ?? 0} silenced heads`],
  draw() {
    if (data.effects?.length && state.run === "this") draw_effects();
    if (data.edits.length) draw_edits();
  },
};
