// The first screen: a row of numbers, one of which the reader drags, the answer that follows, and what the gradient said.
// Without an engine one number moves, the story's knob, through eleven passes computed when the page was written. With an
// engine every number of the row does.
import {
  button, clamped, command_code, counted, draw, dress, format, make, name_cell, note, on_keys, right_cell, svg_text, table_of, unique
} from "./elements.js";
import { state } from "./state.js";
import { data, part_of, place_text, sheet_of, telling, measured, tokens, word_of, words_of_place } from "./data.js";
import { choose, place_words, token_name } from "./frame.js";
import { chart, dot, grid, path_through, reach_of, row_of, row_strip, seen_columns } from "./curves.js";
import { answer_name, asked_after, is_right, percent, predictions } from "./answers.js";
import { ask_newest, has_engine } from "./engine.js";

// ---- The place that moves: the story's, or with an engine the selected pair
export const knob = () => data.knob ?? null;
const keys = ["layer", "head", "i", "j"];
export const to_knob = () => ({ run: "this", ...Object.fromEntries(keys.map((key) => [key, knob()[key]])) });
const name_of = ({ at }) => at.split(" ")[0].replace(/^blocks\.\d+\.(attention\.)?(position\.)?/, "");
const of_knob = (at) => keys.every((key) => at[key] === knob()?.[key]);
const place = () => has_engine || !knob() ? state : knob();
const asked_here = () => asked_after(place().i);

// Returns the quantity whose row is drawn: the one that moves, or for a knob that is no pair a telling one.
const of_bars = () => knob() && measured.find(({ name, axes }) => name === name_of(knob()) && axes === "h i j");
export const moving = () => of_bars() ?? data.all.get(telling(measured));

// ---- What the reader has moved: a stop {edit, number, real, predicted, prediction, rows}, computed before or by the engine
let moved = { at: "", stop: null, tried: [] };
const key_now = () => keys.map((key) => place()[key]).join(" ");
const stop_shown = () => moved.at === key_now() ? moved.stop : null;
// An engine sets single numbers. The stops of a whole row, or of a factor, would be of another curve.
const stops_here = () => of_knob(place()) && (!has_engine || (knob().value !== null && knob().change === "=")) ? knob().stops : [];
const tried = () => moved.at === key_now() ? moved.tried : [];
let redraw = () => {};
function show_stop(stop) {
  moved = { at: key_now(), stop, tried: stop?.rows && !stops_here().includes(stop) ? [...tried(), stop] : tried() };
  redraw();
}

// own_setting is the knob's number for the model as it is, if it is a single one; nearest returns a stop's index.
const own_setting = () => ({ "+=": 0, "*=": 1 })[knob().change] ?? knob().value;
function nearest(number) {
  const away = knob().stops.map((stop) => Math.abs(stop.number - number));
  return away.indexOf(Math.min(...away));
}
// Sets the number of the bar at j: to the nearest stop, or by the engine.
function turn(number, at = place().j) {
  const { change } = knob() ?? { change: "=" }, own = row_at(null, moving().name)?.[at];
  if (!has_engine) {
    const wanted = change === "=" ? number : change === "+=" ? number - own : number / own;
    return show_stop(knob().stops[nearest(wanted)]);
  }
  const value = moving().scale === "unit" ? clamped(number, 0, 1) : number, { layer, head, i, j } = place();
  const edit = `${place_text(words_of_place(moving(), part_of(moving(), layer), { ...state, layer, head, i, j }))} = ${value}`;
  ask_newest({ edit, number: value, layer, head, i }, (stop) => key_now() === [layer, head, i, j].join(" ") && show_stop(stop));
}

// ---- Rows of the place's query
const sheet_here = (name) => sheet_of(name, "value", place(), "this");
const keys_seen = () => Math.max(1, ...stop_rows().map((name) => seen_columns(sheet_here(name), place().i)));
const stop_rows = () => measured.filter(({ axes, name }) => axes === "h i j" && sheet_here(name)).map(({ name }) => name);
function row_at(stop, name) {
  const own = sheet_here(name), found = stop?.rows?.find(({ probe }) => probe === name);
  if (!own || place().i >= own.rows) return null;
  return row_of(own, place().i).slice(0, keys_seen()).map((value, j) => value === null || !found ? value : found.value[j]);
}
const own_value = () => row_at(null, moving().name)?.[place().j] ?? null;
// drags is true if the bar of the selected key can be dragged, whole_row if all bars then move.
const drags = () => own_value() !== null && (has_engine || Boolean(of_bars()));
const whole_row = () => !has_engine && Boolean(of_bars()) && !/ j=/.test(knob().at);

function draw_row(container, width) {
  const { name, scale } = moving(), { i, j } = place(), stop = stop_shown(), own = row_at(null, name);
  if (!own) return container.replaceChildren(note(`No ${name} recorded for ${place_words()}.`));
  const now = stop ? row_at(stop, name) : own, all = stops_here().flatMap((each) => row_at(each, name));
  const key = whole_row() ? "all" : drags() ? j : null;
  const frame = row_strip({ title: name, label: `${name} of query ${i}`, now, own, key, width, last: true, labels: tokens, word: word_of("j"),
    height: 110, reach: scale === "unit" ? [0, 1] : reach_of([...own, ...now, ...all]) });
  frame.follow(j);
  container.replaceChildren(frame.picture);
  return frame;
}
// Returns the numbers of the selected query's row after a move, or null.
export const moved_row = (name) => stop_shown()?.rows && state.run === "this" &&
  keys.slice(0, 3).every((key) => state[key] === place()[key]) ? row_at(stop_shown(), name) : null;

// ---- Change of the loss over the numbers that were tried: the real one, and the gradient's prediction
export const signed = (value) => Math.abs(value) < 1e-12 ? "about 0" : `${value > 0 ? "+" : "\u2212"}${format(Math.abs(value), 3)}`;
function draw_losses(container, width) {
  const recorded = stops_here(), stops = (recorded.length && !has_engine ? recorded : [...recorded, ...tried()])
    .filter(({ number }) => Number.isFinite(number)).sort((one, other) => one.number - other.number);
  if (stops.length < 2) return container.replaceChildren();
  const real = stops.map((each) => each.real), told = stops.filter(({ predicted }) => predicted != null);
  // A straight line may run far beyond the real changes: it is cut at the picture's edge.
  const [least, most] = reach_of(real), room = most - least, inside = told.filter(({ predicted: each }) => each > least - room && each < most + room);
  const reach = reach_of([...real, ...inside.map(({ predicted }) => predicted)]), ends = [stops[0].number, stops.at(-1).number];
  const label = `change of the loss, real: ${real.map((each) => format(each, 3)).join(" ")}; ` +
    `predicted by the gradient: ${told.map(({ predicted }) => format(predicted, 3)).join(" ") || "none"}`;
  const frame = chart({ label, width, height: 170, right: 96, bottom: 26, x: ends, y: reach });
  grid(frame, reach);
  for (const end of unique([...ends, (ends[0] + ends[1]) / 2])) frame.add(svg_text("tick middle", frame.x_of(end), frame.floor + 16, format(end, 3)));
  const line = (some, field, name) => path_through(name, some.map((each) => each[field] >= reach[0] && each[field] <= reach[1]
    ? `${frame.x_of(each.number).toFixed(1)} ${frame.y_of(each[field]).toFixed(1)}` : ""));
  frame.add(svg_text("title", frame.left, 12, `change of the loss by ${has_engine ? moving().name : name_of(knob())}`),
    line(told, "predicted", "engine"), line(stops, "real", "trace"), ...stops.map(({ number, real: value }) => dot(frame, "dot", number, value, 3)));
  const right = width - frame.right + 8, real_y = frame.y_of(real.at(-1)), last = inside.at(-1);
  frame.add(svg_text("curve-name real", right, real_y + 4, "real"));
  if (last) {
    const y = frame.y_of(last.predicted), apart = Math.abs(y - real_y) < 15 ? Math.sign(y - real_y || 1) * 15 + real_y : y;
    frame.add(svg_text("curve-name told", right, apart + 4, "by gradient"));
  }
  const stop = stop_shown(), own = has_engine ? own_value() : own_setting();
  if (own !== null && own >= ends[0] && own <= ends[1]) frame.add(dot(frame, "own-point", own, 0, 4.5));
  if (stop) frame.add(dot(frame, "point", stop.number, stop.real, 5.5));
  container.replaceChildren(frame.picture);
}

// ---- The answer, before and now
function answers_table() {
  const own = predictions("this")[asked_here()], now = stop_shown()?.prediction ?? own;
  if (!own) return note("No question follows this query.");
  const names = unique([own, now].flatMap(({ wanted, likeliest }) => [wanted, ...likeliest]).map(([text]) => text)).slice(0, 3);
  const share = ({ wanted, likeliest }, name) => [wanted, ...likeliest].find(([text]) => text === name)?.[1] ?? null;
  const bar = (before, value) => draw("svg", { class: "answer-bar", viewBox: "0 0 164 16", "aria-hidden": "true" },
    draw("rect", { class: stop_shown() ? "share moved" : "share", x: 1, y: 3, height: 10, width: 160 * (value ?? 0) }),
    draw("rect", { class: "own", x: 1, y: 0.5, height: 15, width: Math.max(1, 160 * (before ?? 0)) }));
  return table_of(["answer", "", "now"], names.map((name) => [name_cell(answer_name(name), name === own.wanted[0] ? " (right)" : ""),
    make("td", {}, bar(share(own, name), share(now, name))),
    right_cell(share(now, name) === null ? "\u2013" : percent(share(now, name)))]), { class: "answers" });
}

// ---- Words
const verdict = (prediction) => is_right(prediction) ? "right" : make("b", { class: "wrong" }, "wrong");
function answer_words() {
  const t = asked_here(), own = predictions("this")[t], now = stop_shown()?.prediction ?? own;
  if (!own) return [];
  const [[said, share]] = now.likeliest;
  const answers = now === own ? " the model answers " : said === own.likeliest[0][0] ? " it still answers " : " it now answers ";
  return ["After ", token_name(t), answers, answer_name(said), ` (${percent(share)}): `, verdict(now), ". "];
}
function invitation() {
  const { caption, name } = moving();
  const what = [`Bars: ${name} of ${place_words()}, for this query`, caption ? ` (${caption})` : "", ". "];
  if (has_engine) return [...what, "Drag any bar."];
  if (!knob()) return what;
  const still = knob().effect < 0.01 ? " Nothing of this kind moves an answer of this sequence."
    : " Of all that were tried, this moves an answer the most.";
  const one = / i=/.test(knob().at), bar = ["Drag the orange bar, at ", token_name(knob().j), one ? "." : "; it moves for all queries."];
  const act = !drags() ? ["Move ", make("code", {}, knob().at), " by the slider."]
    : whole_row() ? `Drag any bar: all bars of this ${one ? "row" : "head"} move together.` : bar;
  return [...what, act, still];
}
const outcome_words = ({ real, predicted }) => ["The loss changes by ", make("b", {}, signed(real)),
  predicted == null ? "; no gradient reaches this number." : ["; the gradient said ", make("b", {}, signed(predicted)), "."]];
function number_words({ number }) {
  if (has_engine || !knob()) return `${moving().name} = ${format(number, 3)}`;
  const { change } = knob(), sign = { "=": "=", "+=": number < 0 ? "\u2212" : "+", "*=": "\u00d7" }[change];
  return `${whole_row() ? "every bar: " : ""}${name_of(knob())} ${sign} ${format(change === "+=" ? Math.abs(number) : number, 3)}`;
}

// ---- The whole: `then` is called after each move
export function draw_turn(container, then = () => {}) {
  const claim = make("p", { class: "claim", role: "status" }), output = make("output"), code = make("p"), said = make("p", { class: "moved" });
  const [losses, answers] = counted(2).map(() => make("div"));
  const row = make("div", { class: "strips drag", tabindex: 0, role: "slider", "data-focus": "knob", "aria-label": `${moving().name} of the row`,
    onkeydown: on_keys((key) => ({ ArrowUp: 1, ArrowDown: -1, Home: -99, End: 99, ArrowLeft: "left", ArrowRight: "right" })[key], by_key) });
  const slider = make("input", { type: "range", step: "any", "data-key": "knob", tabindex: -1, "aria-hidden": "true",
    oninput: ({ target }) => by_slider(Number(target.value)) });
  const reset = button("as the model has it", "knob reset", () => show_stop(null));
  container.append(claim, row, make("p", { class: "knob-bar" }, slider, output, reset),
    make("div", { class: "knob-pictures" }, make("div", {}, said, answers), losses), code);
  let frame = null;
  const stops = () => knob()?.stops ?? [], last = () => stops().length - 1;
  const begin = () => own_setting() ?? (whole_row() ? 0.5 : own_value());
  const index = () => stops().includes(stop_shown()) ? stops().indexOf(stop_shown()) : nearest(begin());
  function by_slider(value) {
    if (has_engine) return turn(value);
    show_stop(stops()[Math.round(value)]);
  }
  function by_key(move) {
    if (typeof move === "string") return void (has_engine && choose({ j: clamped(state.j + (move === "left" ? -1 : 1), 0, keys_seen() - 1) }));
    if (!has_engine) return stops().length && show_stop(stops()[clamped(index() + move, 0, last())]);
    const [low, high] = reach_here();
    turn(clamped((stop_shown()?.number ?? own_value()) + move * (high - low) / 20, low, high));
  }
  const reach_here = () => moving().scale === "unit" ? [0, 1] : reach_of(row_at(null, moving().name));
  let dragged = false;
  const column_of = (event) => clamped(Math.round(frame.at(event).x), 0, keys_seen() - 1);
  const to_pointer = (event) => turn(frame.at(event).y, whole_row() ? column_of(event) : place().j);
  row.addEventListener("pointerdown", (event) => {
    if (!frame) return;
    const j = column_of(event);
    if (has_engine) choose({ j });
    dragged = drags() && (has_engine || whole_row() || j === place().j);
    if (!dragged) return;
    row.setPointerCapture(event.pointerId);
    to_pointer(event);
  });
  row.addEventListener("pointermove", (event) => dragged && to_pointer(event));
  for (const end of ["pointerup", "pointercancel"]) row.addEventListener(end, () => dragged = false);
  function show() {
    const stop = stop_shown(), width = Math.max(300, Math.floor(container.clientWidth));
    claim.replaceChildren(...answer_words().flat());
    said.replaceChildren(...(stop?.problem ? [make("b", { class: "wrong" }, stop.problem)] : stop ? outcome_words(stop) : invitation()).flat(2));
    output.textContent = stop ? number_words(stop) : "as the model has it";
    slider.hidden = !has_engine && !stops().length;
    const [low, high] = has_engine ? reach_here() : [0, last()];
    Object.assign(slider, { min: low, max: high });
    slider.value = has_engine ? stop?.number ?? own_value() : stops().length ? index() : 0;
    dress(row, { "aria-valuemin": low, "aria-valuemax": high, "aria-valuenow": slider.value, "aria-valuetext": output.textContent });
    reset.hidden = !stop;
    code.replaceChildren(...stop && !stop.problem ? [note("The command for it:"), command_code(`${data.command} --edit "${stop.edit}"`)] : []);
    frame = draw_row(row, width);
    draw_losses(losses, Math.min(460, width));
    answers.replaceChildren(answers_table());
    then();
  }
  redraw = () => claim.isConnected && show();
  return show;
}
