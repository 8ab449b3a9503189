// The scheme's knob, a gate or a slope, at the story's pair. The engine computed the pass at eleven values of it when
// the page was written; a slider goes through them.
import {
  button, clamped, command_code, counted, draw, format, make, name_cell, note, right_cell, svg_line, svg_text, table_of,
  unique
} from "./elements.js";
import { state } from "./state.js";
import { data, decode, sheet_of, tokens, word_of } from "./data.js";
import { shown, token_name } from "./frame.js";
import { chart, dot, grid, path_through, reach_of, row_of, seen_columns, strip } from "./curves.js";
import { answer_name, is_right, percent, predictions } from "./answers.js";

export const knob = () => data.knob ?? null;
const keys = ["layer", "head", "i", "j"];
export const at_knob = () => state.run === "this" && keys.every((key) => state[key] === knob()?.[key]);
export const to_knob = () => ({ run: "this", ...Object.fromEntries(keys.map((key) => [key, knob()[key]])) });

// ---- The stop that is shown, or null for the model's own numbers
let chosen = null;
export const stop_shown = () => knob()?.stops[chosen] ?? null;
const own_number = ({ change, value }) => ({ "+=": 0, "*=": 1 })[change] ?? value ?? 0.5;
function nearest_stop() {
  const away = knob().stops.map(({ number }) => Math.abs(number - own_number(knob())));
  return away.indexOf(Math.min(...away));
}

const name_of = ({ at }) => at.split(" ")[0].replace(/^blocks\.\d+\.(attention\.)?(position\.)?/, "");
const number_words = ({ number }) =>
  `${name_of(knob())} ${{ "=": "=", "+=": number < 0 ? "\u2212" : "+", "*=": "\u00d7" }[knob().change]} ` +
  `${knob().change === "+=" ? Math.abs(number) : number}`;
// Says what is moved: the pair's number, or the place that an edit names.
const moved_words = ({ at, change, value }) => [make("code", {}, at), {
  "=": value == null ? ": set to each tenth from 0 to 1" : `: ${format(value)} in this model, set to each tenth from 0 to 1`,
  "*=": ": scaled by 0 to 2; times 1 is this model",
  "+=": ": moved by \u22125 to 5; plus 0 is this model" }[change], "."];

// ---- Rows of the pair's query
const sheet_here = (name) => sheet_of(name, "value", knob(), "this");
// Returns the most keys that the query sees.
const keys_seen = () =>
  Math.max(...knob().stops[0].rows.map(({ probe }) => seen_columns(sheet_here(probe), knob().i)));
function row_at(stop, name) {
  const own = sheet_here(name), found = stop?.rows.find(({ probe }) => probe === name);
  if (!own) return null;
  const moved = found && decode(found, "value");
  return row_of(own, knob().i).slice(0, keys_seen()).map((value, j) => value === null || !moved ? value : moved[j]);
}
export const rows_at = (names) => Object.fromEntries(names.map((name) => [name, row_at(stop_shown(), name)]));

// Draws current numbers, with a dash at the model's own number wherever the two differ.
export function moved_strip({ title, now, own, marks = [], query, key, width, last, shape, reach = reach_of([...now, ...own]) }) {
  const label = `${title} of query ${query}: ${now.map(shown).join(" ")}`;
  const frame = strip({ label, values: now, width, last, labels: tokens, word: word_of("j"), marks, reach });
  shape(frame, now);
  if (now !== own) levels(frame, own, now);
  frame.add(svg_text("title", frame.left, 12, title));
  if (key >= now.length) return frame;
  const x = frame.x_of(key);
  frame.add(svg_line("follow", [x, frame.top - 4], [x, frame.floor]),
    svg_text("now end", width - frame.right, 12, `key ${key}: ${shown(now[key])}`));
  return frame;
}

const half_step = (frame) => Math.min(9, 0.36 * (frame.x_of(1) - frame.x_of(0)));
function levels(frame, own, now) {
  const half = half_step(frame), apart = (j) => Math.abs(frame.y_of(own[j]) - frame.y_of(now[j])) > 1;
  const dashes = own.map((value, j) => Number.isFinite(value) && apart(j)
    ? `M${(frame.x_of(j) - half).toFixed(1)} ${frame.y_of(value).toFixed(1)}h${(2 * half).toFixed(1)}` : "");
  frame.add(draw("path", { class: "own-level", d: dashes.join("") }));
}
export const columns = (name) => (frame, values) => {
  const half = half_step(frame);
  values.forEach((value, j) => {
    const ends = [frame.y_of(value), frame.y_of(0)], y = Math.min(...ends), height = Math.max(1, Math.max(...ends) - y);
    const column = draw("rect", { class: name, x: frame.x_of(j) - half, width: 2 * half, y, height });
    if (Number.isFinite(value)) frame.add(column);
  });
};

// Draws the staircase of positions: each step is as high as a key's gate.
export function steps(frame, values) {
  const half = (frame.x_of(1) - frame.x_of(0)) / 2;
  const path = values.map((value, j) => {
    const to = `${frame.y_of(value)}H${frame.x_of(j) + half}`;
    if (!Number.isFinite(value)) return "";
    return Number.isFinite(values[j - 1]) ? `V${to}` : `M${frame.x_of(j) - half} ${to}`;
  });
  frame.add(draw("path", { class: "trace", d: path.join("") }));
}

const drawn_names = () => {
  const recorded = new Set(knob().stops[0].rows.map(({ probe }) => probe));
  return unique([name_of(knob()), "positions", "logits", "pattern"]).filter((name) => recorded.has(name));
};

function draw_rows(container, width) {
  const names = drawn_names(), stop = stop_shown(), { i, j, stops } = knob();
  container.replaceChildren(...names.map((name, index) => {
    const own = row_at(null, name), now = stop ? row_at(stop, name) : own;
    const all = stops.flatMap((each) => row_at(each, name));
    return moved_strip({ title: name, now, own, query: i, key: j, width, last: index === names.length - 1,
      reach: data.all.get(name).scale === "unit" || name === "pattern" ? [0, 1] : reach_of([...own, ...all]),
      shape: name === "positions" ? steps : columns("gate") }).picture;
  }));
}

// ---- Change of the loss over the stops: the real one, and the gradient's prediction
function draw_losses(container, width, act) {
  const { stops } = knob(), real = stops.map((each) => each.real);
  const told = stops[0].predicted === null ? [] : stops.map(({ predicted }) => predicted);
  // A straight line may run far beyond the real changes: it is cut at the picture's edge.
  const [least, most] = reach_of(real), room = most - least, inside = told.filter((each) => each > least - room && each < most + room);
  const reach = reach_of([...real, ...inside]), ends = [stops[0].number, stops.at(-1).number];
  const label = `change of the loss at eleven values, real: ${real.map((each) => format(each, 3)).join(" ")}; ` +
    `predicted by the gradient: ${told.map((each) => format(each, 3)).join(" ") || "none"}`;
  const frame = chart({ label, width, height: 190, right: 96, bottom: 26, x: ends, y: reach });
  grid(frame, reach);
  for (const { number } of stops.filter((_, k) => k % 5 === 0)) {
    frame.add(svg_text("tick middle", frame.x_of(number), frame.floor + 16, number));
  }
  const line = (values, name) => path_through(name, values.map((value, k) => value >= reach[0] && value <= reach[1]
    ? `${frame.x_of(stops[k].number).toFixed(1)} ${frame.y_of(value).toFixed(1)}` : ""));
  frame.add(svg_text("title", frame.left, 12, "change of the loss"),
    svg_text("tick", width - frame.right + 8, frame.floor + 16, name_of(knob())));
  if (told.length) frame.add(line(told, "engine"));
  frame.add(line(real, "trace"), ...stops.map(({ number, real: value }) => dot(frame, "dot", number, value, 3)));
  const right = width - frame.right + 8, real_y = frame.y_of(real.at(-1)), last = told.findLastIndex((each) => each >= reach[0] && each <= reach[1]);
  frame.add(svg_text("curve-name real", right, real_y + 4, "real"));
  if (last >= 0) {
    const y = frame.y_of(told[last]), apart = Math.abs(y - real_y) < 15 ? Math.sign(y - real_y || 1) * 15 + real_y : y;
    frame.add(svg_text("curve-name told", right, apart + 4, "by gradient"));
  }
  const stop = stop_shown();
  if (stop) {
    const x = frame.x_of(stop.number);
    frame.add(svg_line("follow", [x, frame.top - 4], [x, frame.floor]), dot(frame, "point", stop.number, stop.real, 5.5));
  }
  frame.picture.addEventListener("click", (event) => {
    const share = (frame.at(event).x - ends[0]) / (ends[1] - ends[0]);
    act(clamped(Math.round(share * (stops.length - 1)), 0, stops.length - 1));
  });
  container.replaceChildren(frame.picture);
}

// ---- The answer, before and now
function answers_table() {
  const own = predictions("this")[knob().asked], now = stop_shown()?.prediction ?? own;
  if (!own) return note("No question follows this query.");
  const names = unique([own, now].flatMap(({ wanted, likeliest }) => [wanted, ...likeliest]).map(([text]) => text)).slice(0, 4);
  const share = ({ wanted, likeliest }, name) => [wanted, ...likeliest].find(([text]) => text === name)?.[1] ?? null;
  const words = (value) => right_cell(value === null ? "below these" : percent(value));
  const bar = (before, value) => make("td", {}, draw("svg", { class: "answer-bar", width: 164, height: 16, "aria-hidden": "true" },
    draw("rect", { class: "share", x: 1, y: 3, height: 10, width: 160 * (value ?? 0) }),
    draw("rect", { class: "own", x: 1, y: 0.5, height: 15, width: Math.max(1, 160 * (before ?? 0)) })));
  return table_of([["p of the answer after ", token_name(knob().asked)], "now", "model", ""], names.map((name) =>
    [name_cell(answer_name(name), name === own.wanted[0] ? " (right)" : ""), words(share(now, name)), words(share(own, name)),
      bar(share(own, name), share(now, name))]), { class: "answers" });
}

const signed = (value) => `${value > 0 ? "+" : ""}${shown(value)}`;
function words_of(stop) {
  const own = data.predictions[knob().asked];
  if (!stop) return ["These are the model's own numbers. Move the slider, with the arrow keys too."];
  const { loss, real, predicted, prediction } = stop;
  const said = !prediction || !own ? [] : ["After ", token_name(knob().asked), " it answers ", answer_name(prediction.likeliest[0][0]),
    ` (${percent(prediction.likeliest[0][1])}), `, is_right(prediction) ? "right. " : make("b", { class: "wrong" }, "wrong. ")];
  return ["The loss is ", make("b", {}, shown(loss)), `: ${signed(real)}`,
    predicted === null ? ". " : `, and the gradient predicted ${signed(predicted)}. `, said];
}

// ---- The whole knob: a slider, what follows in words, and pictures; the loupe draws the rows itself
export function draw_knob({ words, pictures, with_rows = true, then = () => {} }) {
  const { stops } = knob(), last = stops.length - 1;
  const output = make("output"), follows = make("p", { class: "moved", role: "status" }), code = make("p");
  const [rows, losses] = counted(2).map(() => make("div", { class: "strips" })), answers = make("div");
  const slider = make("input", { type: "range", min: 0, max: last, step: 1, "data-focus": "knob", "data-key": "knob",
    "aria-label": `${name_of(knob())} of the pair`, oninput: ({ target }) => move(Number(target.value)) });
  const reset = button("as the model has it", "knob reset", () => move(null));
  words.append(make("p", {}, ...moved_words(knob())), make("p", { class: "knob-bar" }, slider, output, reset), follows, code);
  pictures.append(...with_rows ? [rows] : [], make("div", { class: "knob-pictures" }, losses, answers));
  const width = () => Math.max(300, Math.floor(pictures.clientWidth));
  function move(to) {
    chosen = to;
    show();
    then();
  }
  function show() {
    const stop = stop_shown();
    slider.value = chosen ?? nearest_stop();
    output.textContent = stop ? number_words(stop) : "as the model has it";
    slider.setAttribute("aria-valuetext", output.textContent);
    reset.disabled = !stop;
    follows.replaceChildren(...words_of(stop).flat());
    code.replaceChildren(...stop ? [note("The command for it:"), command_code(`${data.command} --edit "${stop.edit}"`)] : []);
    if (with_rows) draw_rows(rows, width());
    draw_losses(losses, Math.min(460, width()), move);
    answers.replaceChildren(answers_table());
  }
  return show;
}
