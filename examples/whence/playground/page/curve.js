// The loss over the steps, on a logarithmic axis that all models share.
import { clamped, counted, draw, svg_line, svg_text } from "./elements.js";
import { learners } from "./learners.js";

const width = 340, height = 150, left = 34, right = 8, top = 8, bottom = 20;

// One number for every few steps, their mean in the logarithm; so long a training is still one short path.
function thinned(losses, most = 170) {
  const every = Math.ceil(losses.length / most) || 1;
  return counted(Math.ceil(losses.length / every)).map((k) => {
    const part = losses.slice(k * every, (k + 1) * every).map((loss) => Math.log10(Math.max(loss, 1e-9)));
    return { step: k * every + (part.length + 1) / 2, level: part.reduce((sum, each) => sum + each, 0) / part.length };
  }).filter(({ level }) => Number.isFinite(level));
}

export function curve_of(learner, label) {
  const lines = learners.map((each) => ({ each, points: thinned(each.losses) }));
  const levels = lines.flatMap(({ points }) => points.map(({ level }) => level));
  const low = Math.floor(Math.min(-1, ...levels)), high = Math.ceil(Math.max(0.31, ...levels) * 4) / 4;
  const last = Math.min(learner.steps, Math.max(50, ...learners.map(({ step }) => 1.08 * step)));
  const x_of = (step) => left + (width - left - right) * step / last;
  const y_of = (level) => top + (height - top - bottom) * (high - level) / (high - low);
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const level of counted(Math.floor(high) - low + 1).map((k) => low + k)) {
    picture.append(svg_line("grid", [left, y_of(level)], [width - right, y_of(level)]),
      svg_text("tick end", left - 5, y_of(level) + 4, level < -3 ? `1e${level}` : String(10 ** level)));
  }
  const numbered = [5, 10, 20, 50, 100, 200, 500, 1000].find((step) => last / step <= 6) ?? 5000;
  for (let step = 0; step <= last; step += numbered) {
    picture.append(svg_text("tick middle", clamped(x_of(step), left, width - 18), height - 5, step));
  }
  const way = ({ step, level }, k) => `${k ? "L" : "M"}${x_of(step).toFixed(1)} ${y_of(level).toFixed(1)}`;
  const line = ({ points }, name) => draw("path", { class: name, d: points.map(way).join("") });
  picture.append(...lines.filter(({ each }) => each !== learner).map((each) => line(each, "other")),
    ...lines.filter(({ each }) => each === learner).map((each) => line(each, `curve c${learner.index}`)));
  return picture;
}
