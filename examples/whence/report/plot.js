// Plots of curves. Each is drawn from the JSON in its figure.
const HEIGHT = 330, LEFT = 64, TOP = 14, FLOOR = HEIGHT - 46;
// On a phone a plot is drawn as wide as it is shown, so that its letters keep their size.
const phone = matchMedia("(max-width: 500px)"), width_now = () => phone.matches ? 350 : 680;
// Schemes that have the same colour and dashes on all pages.
const KNOWN = ["cope", "rope", "absolute", "alibi", "dape", "cdape", "kerple", "none", "fire", "forgetting", "stick_breaking", "path",
  "t5", "mta", "shaw", "relative", "transformer_xl", "sinusoidal", "xpos", "yarn", "cable", "carope", "repo", "selective_rope", "pope",
  "cope_mlp", "cope_alibi", "sandwich", "window", "interpolated", "randomised", "shifted", "layers", "ssmax", "sink", "gated_output",
  "hard_attention", "qk_norm"];

// Returns the classes of each curve. The index of its first name in KNOWN selects colour and dash, and the other characters
// shift the dash. Unknown names use the curve's number. If two curves would look the same, the later one has the next dash.
function classes_of(names) {
  const taken = new Set();
  return names.map((name, number) => {
    const first = name.match(/^\w*/)[0], known = KNOWN.indexOf(first), place = known < 0 ? number : known;
    const rest = known < 0 ? 0 : [...name.slice(first.length)].reduce((sum, character) => sum + character.codePointAt(0), 0);
    const looks = [0, 1, 2, 3, 4, 5].map((more) => `curve c${place % 7} d${(place + rest + more) % 6}`);
    const look = looks.find((each) => !taken.has(each)) ?? looks[0];
    taken.add(look);
    return look;
  });
}

const draw = (tag, attributes, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};
const line = (css, x1, y1, x2, y2) => draw("line", { class: css, x1, y1, x2, y2 });
const text = (css, x, y, words, more = {}) => draw("text", { class: css, x, y, ...more }, words);

// Returns a step of 1, 2 or 5 times a power of ten, for about five ticks.
function round_step(span) {
  const power = 10 ** Math.floor(Math.log10(span / 5));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => span / 5 <= step * 1.0001);
}

// Returns an axis for the values, from `start` to `end` in the picture. A positive quantity starts at zero unless that would
// squash it. A logarithmic axis has ticks at 1, 2 and 5 of each decade if it has few decades.
function axis_of(values, log, from_zero, start, end) {
  const shown = values.filter((value) => Number.isFinite(value) && (!log || value > 0));
  let low = Math.min(...shown), high = Math.max(...shown);
  if (!shown.length) [low, high] = [log ? 1 : 0, log ? 10 : 1];
  if (from_zero && !log && low > 0 && low < 0.5 * high) low = 0;
  if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
  const ticks = [];
  if (log && high >= 10 * low) {
    const factors = high < 300 * low ? [1, 2, 5] : [1], every = Math.max(1, Math.ceil(Math.log10(high / low) / 6));
    for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += every) {
      ticks.push(...factors.map((factor) => factor * 10 ** power).filter((at) => at >= low && at <= high));
    }
  } else {
    const step = round_step(high - low);
    if (from_zero && !log) [low, high] = [Math.floor(low / step + 1e-9) * step, Math.ceil(high / step - 1e-9) * step];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; ++k) ticks.push(k * step);
  }
  const scaled = log ? Math.log10 : Number;
  const at = (value) => start + (scaled(value) - scaled(low)) / (scaled(high) - scaled(low)) * (end - start);
  return { at, ticks, shows: (value) => Number.isFinite(value) && (!log || value > 0) };
}

// Moves names at the ends of curves apart if they would touch.
function set_apart(labels) {
  labels.sort((a, b) => a.y - b.y);
  labels.forEach((label, k) => { label.at = k ? Math.max(label.y, labels[k - 1].at + 14) : label.y; });
  const over = labels.length ? Math.max(0, labels.at(-1).at - FLOOR) : 0;
  for (const label of labels) label.at -= over;
}

function draw_plot(plot) {
  const WIDTH = width_now();
  const longest = Math.max(0, ...plot.curves.map((curve) => curve.name.length));
  const right = WIDTH - Math.min(220, 7 * longest + 18);
  const x = axis_of(plot.curves.flatMap((curve) => curve.x), false, false, LEFT, right);
  const y = axis_of(plot.curves.flatMap((curve) => curve.y), plot.log, true, FLOOR, TOP);
  const words = `${plot.y} over ${plot.x}: ${plot.curves.map((curve) => `${curve.name} ends at ${curve.y.at(-1)}`).join(", ")}`;
  const picture = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": words });
  const digits = (value) => String(Number(value.toPrecision(6)));
  for (const tick of y.ticks) {
    picture.append(line("grid", LEFT, y.at(tick), right, y.at(tick)), text("tick end", LEFT - 8, y.at(tick) + 4, digits(tick)));
  }
  const every = Math.ceil(x.ticks.length * 44 / (right - LEFT));
  x.ticks.forEach((tick, number) => {
    picture.append(line("axis", x.at(tick), FLOOR, x.at(tick), FLOOR + 5), text("tick middle", x.at(tick), FLOOR + 19, number % every ? "" : digits(tick)));
  });
  picture.append(line("axis", LEFT, FLOOR, right, FLOOR), text("label middle", (LEFT + right) / 2, HEIGHT - 6, plot.x),
    text("label middle", 14, (TOP + FLOOR) / 2, plot.y, { transform: `rotate(-90 14 ${(TOP + FLOOR) / 2})` }));
  const labels = [], looks = classes_of(plot.curves.map((curve) => curve.name));
  plot.curves.forEach((curve, number) => {
    const points = curve.y.map((value, k) => y.shows(value) ? `${x.at(curve.x[k]).toFixed(1)} ${y.at(value).toFixed(1)}` : "");
    const d = points.map((point, k) => point && `${points[k - 1] ? "L" : "M"}${point}`).join("");
    picture.append(draw("path", { class: looks[number] + (points.length > WIDTH ? " dense" : ""), d }));
    const last = points.findLastIndex(Boolean);
    if (last >= 0) labels.push({ name: curve.name, x: x.at(curve.x[last]), y: y.at(curve.y[last]) });
  });
  set_apart(labels);
  for (const { name, x: end, y: from, at } of labels) {
    picture.append(line("leader", end, from, right + 6, at), text("label", right + 8, at + 4, name));
  }
  return picture;
}

for (const data of document.querySelectorAll("script.plot")) {
  const plot = JSON.parse(data.textContent), place = data.parentElement;
  const draw_again = () => {
    place.querySelector("svg")?.remove();
    place.append(draw_plot(plot));
  };
  phone.addEventListener("change", draw_again);
  draw_again();
}
