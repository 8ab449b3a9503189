// View: one pair (i, j) under a loupe: the gates of its row, the positions that they add up to, logits and attention,
// and what the pair reads of z. With an engine in the page a gate can be moved, and the engine computes the effect.
import {
  button, clamped, command_code, counted, dress, format, make, note, on_keys, sum_of, svg_line, svg_text
} from "./elements.js";
import { state } from "./state.js";
import { data, sheet_of, tokens, value_at } from "./data.js";
import {
  choose, facts_table, of_selection, place_words, reading, run_words, shown, single_run, stage, token_name, update
} from "./frame.js";
import { text_at } from "./map.js";
import { answer_name, asked, asked_after, percent, predictions } from "./answers.js";
import { chart, dot, grid, index_axis, reach_of, row_of, seen_columns, trace } from "./curves.js";
import { at_knob, columns, draw_knob, knob, moved_strip, rows_at, steps, stop_shown, to_knob } from "./knob.js";
import { made_of, number_of } from "./worked.js";
import { ask_newest, has_engine } from "./engine.js";

// ---- The engine's numbers of row i
function part_here(name, kind = "value", run = single_run()) {
  const found = sheet_of(name, kind, state, run);
  return found && found.rows > state.i ? found : null;
}

const names = ["gates", "positions", "z", "position_logit", "scores", "logits", "pattern"];
function loupe_row(run = single_run()) {
  const parts = names.map((name) => part_here(name, "value", run)), [gates, positions] = parts;
  if (!gates || !positions) return null;
  const seen = seen_columns(gates, state.i);
  const row = Object.fromEntries(names.map((name, k) =>
    [name, parts[k] && row_of(parts[k], state.i).slice(0, name === "z" ? parts[k].columns : seen)]));
  return { ...row, keys: counted(seen).filter((j) => row.gates[j] !== null), marks: positions.marks };
}

// ---- Gates that the reader has moved in this row, and the engine's answer
let hand = {};
function moved() {
  const row = [state.layer, state.head, state.i].join(" ");
  if (hand.row !== row) hand = { row, gates: new Map(), answer: null };
  return hand;
}

let redraw = () => {};
function set_gate(j, value) {
  const { keys, gates: before } = loupe_row(), mine = moved(), { layer, head, i } = state;
  if (!has_engine || !keys.includes(j)) return;
  mine.gates.set(j, clamped(value, 0, 1));
  const gradient = part_here("gates", "gradient"), wish = [...mine.gates];
  const predicted = gradient && sum_of(wish.map(([key, gate]) => (gate - before[key]) * value_at(gradient, i, key)));
  ask_newest(wish.map(([key, gate]) => `gates layer=${layer} head=${head} i=${i} j=${key} = ${gate}`), (answer) => {
    mine.answer = { ...answer, predicted, count: wish.length };
    redraw();
  });
  redraw();
}

// ---- Charts over the keys
const loupe_charts = [["gates", `gates g${has_engine ? " (drag one)" : ""}`],
  ["positions", "positions p"], ["logits", "logits A"], ["pattern", "pattern P"]];

function draw_charts(container, row, now) {
  const width = Math.max(320, Math.floor(container.clientWidth)), charts = loupe_charts.filter(([name]) => now[name]);
  const shapes = { gates: columns("gate"), positions: steps };
  const frames = charts.map(([name, title], index) => moved_strip({ title, now: now[name], own: row[name], query: state.i,
    key: state.j, marks: name === "positions" ? row.marks : [], width, last: index === charts.length - 1,
    ...(name === "gates" ? { reach: [0, 1] } : {}), shape: shapes[name] ?? line_over_columns }));
  container.replaceChildren(...frames.map((frame) => frame.picture));
  return frames[0];
}

function line_over_columns(frame, values) {
  columns("stem")(frame, values);
  trace(frame, values);
}

// ---- z over positions, with what (i, j) reads there and, for unmoved gates, the recorded derivative
function slope_here() {
  const read = number_of(data.all.get("position_logit")), as_recorded = single_run() === "this" && !moved().gates.size && !stop_here();
  const terms = as_recorded && read && made_of(read, data.all.get("positions"));
  return terms ? terms[0]?.derivative ?? 0 : null;
}

function z_curve({ z, positions, position_logit }, slope, width) {
  const p = positions[state.j], value = position_logit?.[state.j], reach = reach_of(z), far = 0.8;
  const label = `z of query ${state.i} over whole positions: ${z.map((each) => format(each, 3)).join(" ")}`;
  const frame = chart({ label, width, height: 240, bottom: 32, x: [-0.5, z.length - 0.5], y: reach });
  const place = (away) => [frame.x_of(p + away), frame.y_of(value + away * slope)];
  grid(frame, reach);
  index_axis(frame, null, z.length, "n");
  trace(frame, z);
  frame.add(svg_text("title", frame.left, 12, `z over positions n of query ${state.i}`),
    ...[Math.floor(p), Math.ceil(p)].map((n) => dot(frame, "row-read", n, z[n], 5)));
  if (slope) frame.add(svg_line("tangent", place(-far), place(far)));
  if (value != null) frame.add(dot(frame, "point", p, value, 5));
  return frame.picture;
}

function facts_of({ z, positions, position_logit, scores, logits, pattern }, slope) {
  const at = (row) => row?.[state.j], p = at(positions), low = Math.floor(p), high = Math.ceil(p);
  const of_z = z ? [["floor of p: row", low], ["ceiling of p: row", high], ["w = p \u2212 floor p", p - low],
    ["z at the floor", z[low]], ["z at the ceiling", z[high]]] : [];
  const all = [["position p", p], ...of_z, ["read: position_logit", at(position_logit)],
    ["slope: its derivative by p", slope], ["score S, of the content", at(scores)], ["logit A", at(logits)],
    ["pattern P", at(pattern)]];
  return all.filter(([, each]) => each != null);
}

// Says why gradients stop on their way from this pair's logit to its gate.
function stops_here() {
  return ["positions", "gates"].flatMap((name) => {
    const found = part_here(name, "gradient"), cause = found?.causes?.[state.i * found.columns + state.j];
    const { kind, text } = found?.run.causes[cause] ?? {};
    return cause ? [note(`dLoss/d${name} here: `, make("b", {}, kind), `: ${text}.`)] : [];
  });
}

function sides_of(row, width) {
  if (!row.keys.includes(state.j)) return [note("The mask hides this key from this query.")];
  const slope = slope_here(), facts = facts_table("of this pair", "now", facts_of(row, slope), { class: "facts" });
  return [row.z && z_curve(row, slope, Math.max(320, width)), facts, ...moved().gates.size || stop_here() ? [] : stops_here()]
    .filter(Boolean);
}

// ---- The effect on the whole model
const signed = (value) => `${value > 0 ? "+" : ""}${shown(value)}`;
const answer_at = (t) => [answer_name(predictions()[t].wanted[0]), " after ", token_name(t)];
const share_at = (t, run) => predictions(run)[t].wanted[1];
function words_now({ gates, answer }) {
  const t = asked_after(state.i);
  if (!gates.size) return ["The model gives the wanted answer ", answer_at(t), ` ${percent(share_at(t))}. Drag a gate.`];
  if (!answer) return ["The engine is computing."];
  if (answer.problem) return [make("b", { class: "wrong" }, answer.problem)];
  const { loss, before, predicted, count, run } = answer, change = (at) => Math.abs(share_at(at, run) - share_at(at));
  const most = asked().reduce((one, other) => change(other) > change(one) ? other : one);
  return [`With ${count > 1 ? "these gates" : "this gate"} the loss is `, make("b", {}, shown(loss)),
    ` in place of ${shown(before)}: ${signed(loss - before)}`,
    predicted == null ? "" : `, and the gradient predicted ${signed(predicted)}`, ". Among wanted answers ",
    answer_at(most), ` changes most: from ${percent(share_at(most))} to ${percent(share_at(most, run))}.`];
}

// Without an engine only the story's pair moves, through the stops computed beforehand.
const stop_here = () => !has_engine && at_knob() ? stop_shown() : null;
function draw_moves(container) {
  container.replaceChildren();
  if (single_run() !== "this") return null;
  if (at_knob()) return draw_knob({ words: container, pictures: container, with_rows: false, then: () => redraw() });
  const { layer, head, i, j } = state, edit = `"gates layer=${layer} head=${head} i=${i} j=${j} = 0"`;
  const way = knob() && button("the story\u2019s pair", "to knob", () => update(to_knob()));
  dress(container, {}, make("p", { class: "moved" }, way && ["This page moves the gate of ", way, ". "],
    "This command shuts the selected gate:", command_code(`${data.command} --edit ${edit}`),
    "On a page with the engine you can drag any gate:", command_code(`${data.command} --playground`)));
  return null;
}

// ---- The view
export function draw_loupe() {
  if (!loupe_row()) return stage.append(note(`No gates and positions recorded for ${place_words()}.`));
  const parts = {
    title: make("h3"), slider_name: make("span"), value: make("output"), side: make("div", { class: "loupe-side" }),
    slider: make("input", { type: "range", min: 0, max: 1, step: "any", "data-focus": "gate", "data-key": "gate",
      oninput: ({ target }) => set_gate(state.j, Number(target.value)) }),
    follows: make("p", { class: "moved", role: "status" }), moves: make("div", { class: "moves" }),
    charts: make("div", { class: `strips loupe${has_engine ? " drag" : ""}`, tabindex: 0, role: "application",
      "data-focus": "gates", "aria-label":
        `gates of the row: left and right choose a key${has_engine ? ", up and down move its gate" : ""}`,
      onkeydown: on_keys((key) => gate_moves[key], move_gate) }),
  };
  const { title, follows, moves, slider_name, value, slider, charts, side } = parts;
  redraw = () => title.isConnected && show_loupe(parts);
  let show_moves = null;
  const draw_all = () => {
    if (!has_engine) show_moves = draw_moves(moves);
    show_loupe(parts);
    show_moves?.();
  };
  const reset = button("as the engine has them", "reset", () => {
    hand = {};
    redraw();
  });
  const bar = make("p", { class: "gate-bar" }, make("label", {}, slider_name, slider), value, reset);
  stage.append(title, ...(has_engine ? [bar, follows] : [moves]), make("div", { class: "beside" }, charts, side));
  drag_gates(parts);
  of_selection(draw_all);
}

function show_loupe(parts) {
  const { title, follows, charts, slider, slider_name, value, side } = parts, { layer, head, i, j } = state;
  const row = loupe_row(), { gates, answer } = moved(), computed = answer?.run ? loupe_row(answer.run) : row;
  const now = gates.size ? { ...computed, gates: row.gates.map((gate, key) => gates.get(key) ?? gate) }
    : stop_here() ? { ...row, ...rows_at(names.filter((name) => name !== "z")) } : row;
  const seen = row.keys.includes(j);
  const place = `layer ${layer}, head ${head}${run_words()}`;
  title.replaceChildren("Query ", token_name(i), ", key ", token_name(j), `, ${place}`);
  slider_name.replaceChildren("gate of key ", token_name(j));
  slider.disabled = !seen;
  slider.value = now.gates[j];
  value.textContent = seen ? `${shown(now.gates[j])} (engine ${shown(row.gates[j])})` : "masked";
  if (has_engine) follows.replaceChildren(...words_now(moved()).flat());
  parts.gates = draw_charts(charts, row, now);
  side.replaceChildren(...sides_of(now, side.clientWidth));
}

const gate_moves =
  { ArrowLeft: { keys: -1 }, ArrowRight: { keys: 1 }, ArrowUp: { gate: 0.05 }, ArrowDown: { gate: -0.05 } };
function move_gate({ keys, gate }) {
  if (keys) choose({ j: clamped(state.j + keys, 0, tokens.length - 1) });
  else set_gate(state.j, (moved().gates.get(state.j) ?? loupe_row().gates[state.j]) + gate);
}

// The charts are drawn anew while a gate is dragged, so their container listens.
function drag_gates(parts) {
  const { charts } = parts;
  let dragged = null;
  charts.addEventListener("pointerdown", (event) => {
    const { x, y } = parts.gates.at(event), j = Math.round(x);
    if (j < 0 || j >= loupe_row().gates.length) return;
    choose({ j });
    dragged = has_engine && y > -0.1 && y < 1.2 ? j : null;
    charts.setPointerCapture(event.pointerId);
  });
  charts.addEventListener("pointermove", (event) => {
    if (dragged !== null) set_gate(dragged, parts.gates.at(event).y);
  });
  for (const end of ["pointerup", "pointercancel"]) charts.addEventListener(end, () => dragged = null);
}

export const loupe_view = {
  key: "loupe", title: "Loupe",
  wants: () => ["gates", "positions"].every((name) => data.all.has(name)),
  hint: "Look at one gate and at everything left of it: a gate adds to the position of every earlier key.",
  controls: () => ["layer", "head"],
  readout: (at) => [`${place_words()}, query `, token_name(at.i), ", key ", token_name(at.j), ": ",
    ...loupe_charts.map(([name]) => part_here(name)).filter(Boolean)
      .flatMap((found) => reading(found.title, text_at(found, at)))],
  draw: draw_loupe,
};
