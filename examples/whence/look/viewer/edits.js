// View: what the gradient promised for an edit of the model against what the edit really did to the loss.
import { draw, format, heading, make, table_of } from "./elements.js";
import { data, run_shown } from "./data.js";
import { number_cell, stage } from "./frame.js";
import { chart, grid, reach_of } from "./curves.js";

function draw_edits() {
  const { edits, label } = run_shown(), picture = make("div", { class: "scatter" });
  if (!edits.length) return stage.append(make("p", { class: "note" }, `No edits recorded for ${label}.`));
  const lines = edits.map(({ edit, predicted, real }, index) => make("tr",
    { tabindex: 0, "data-focus": `edit ${index}` },
    make("td", { class: "n" }, index + 1), make("th", { scope: "row" }, make("code", {}, edit)),
    ...[predicted, real, real - predicted].map(number_cell)));
  const table = table_of([heading("no.", true), heading("edit"), heading("predicted", true), heading("real", true),
    heading("real \u2212 predicted", true)], lines, { class: "edits" });
  stage.append(make("h3", {}, "Change of the loss by each edit"), make("div", { class: "beside" }, picture, table));
  const points = scatter(picture, edits);
  const mark = (index) => points.forEach((point, k) => point.classList.toggle("chosen", k === index));
  for (const [index, line] of lines.entries()) {
    line.addEventListener("focus", () => mark(index));
    line.addEventListener("pointerenter", () => mark(index));
    points[index].addEventListener("click", () => line.focus());
  }
}

// On the line the gradient told the truth.
function scatter(container, edits) {
  const reach = reach_of(edits.flatMap(({ predicted, real }) => [predicted, real])), [low, high] = reach;
  const width = Math.max(320, container.clientWidth);
  const label = "real over predicted change of the loss; the line is where they are equal";
  const frame = chart({ label, width, height: width * 0.8, right: 40, bottom: 44, x: reach, y: reach });
  grid(frame, reach);
  frame.add("path", { class: "limit",
    d: `M${frame.x_of(low)} ${frame.y_of(low)}L${frame.x_of(high)} ${frame.y_of(high)}` });
  frame.add("text", { class: "title", x: frame.left, y: 12 }, "real change of the loss");
  frame.add("text", { class: "title end", x: width - frame.right, y: frame.floor + 34 }, "predicted change");
  for (const tick of reach) {
    frame.add("text", { class: "tick middle", x: frame.x_of(tick), y: frame.floor + 17 }, format(tick, 3));
  }
  const points = edits.map(({ edit, predicted, real }, index) => frame.add("g", { class: "edit" },
    draw("title", {}, `${index + 1}: ${edit}: predicted ${predicted}, real ${real}`),
    draw("circle", { cx: frame.x_of(predicted), cy: frame.y_of(real), r: 5 }),
    draw("text", { x: frame.x_of(predicted) + 7, y: frame.y_of(real) + 4 }, index + 1)));
  container.replaceChildren(frame.picture);
  return points;
}

export const edits_view = {
  wants: () => data.edits.length > 0,
  key: "edits", title: "Edits",
  hint: "Look for points far from the line: there the loss bends, and a gradient alone would mislead.",
  quantities: () => [],
  controls: () => [],
  readout: () => [`${run_shown().edits.length} edits`],
  draw: draw_edits,
};
