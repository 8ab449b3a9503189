// View: one pair (i, j) under a loupe. Where positions are sums of gates, a gate can be moved; what hangs on it is
// computed again, here, from the gates, z and the logits.
import {
  button, clamped, command_code, counted, draw, format, make, note, on_keys, sum_of, svg_line, svg_text
} from "./elements.js";
import { state } from "./state.js";
import { data, sheet_of, tokens, value_at, word_of } from "./data.js";
import {
  check_line, choose, facts_table, of_selection, place_words, reading, run_words, shown, single_run, stage, token_name
} from "./frame.js";
import { text_at } from "./map.js";
import { answer_name, asked, percent, predictions } from "./answers.js";
import { chart, dot, grid, index_axis, reach_of, row_of, strip, trace } from "./curves.js";

const part_value = (name) => {
  const found = sheet_of(name, "value", state, single_run());
  return found && found.rows > state.i ? found : null;
};
const engine_row = (name) => part_value(name) && row_of(part_value(name), state.i);

// ---- The engine's numbers of row i
function loupe_row() {
  const gates = part_value("gates"), positions = part_value("positions");
  if (!gates || !positions) return null;
  const names = ["gates", "positions", "z", "scores", "logits", "pattern"];
  const row = Object.fromEntries(names.map((name) => [name, engine_row(name)]));
  return { ...row, keys: counted(gates.columns).filter((j) => row.gates[j] !== null),
    limit: positions.marks.find(({ text }) => text === "p_max")?.value ?? Infinity,
    exchanged: /interpolation=equation5/.test(positions.quantity.scheme) };
}

// ---- The same numbers again, from gates
// p_j = min(g_j + ... + g_i, p_max): from the query leftwards.
function positions_of({ keys, limit }, gates) {
  const positions = gates.map(() => null);
  let sum = 0;
  for (const j of [...keys].reverse()) {
    sum += gates[j];
    positions[j] = Math.min(sum, limit);
  }
  return positions;
}

// Between two rows of the table, as Listing 1 reads it, or with the weights exchanged, as Equation 5 prints them; at a
// whole position both are one row.
function between({ z, exchanged }, p) {
  const [low, high] = [Math.floor(p), Math.ceil(p)].map((n) => clamped(n, 0, z.length - 1)), w = p - Math.floor(p);
  return { low, high, w, of_high: exchanged && high > low ? 1 - w : w };
}

function read_z(row, p) {
  const { low, high, of_high } = between(row, p);
  return (1 - of_high) * row.z[low] + of_high * row.z[high];
}

function softmax_of({ keys }, logits) {
  const most = Math.max(...keys.map((j) => logits[j])), weights = logits.map(() => null);
  for (const j of keys) weights[j] = Math.exp(logits[j] - most);
  const sum = sum_of(keys.map((j) => weights[j]));
  return weights.map((weight) => weight === null ? null : weight / sum);
}

// Logits move from the engine's own, so that what other schemes added to them stays.
function moved(row, gates) {
  const positions = positions_of(row, gates), before = positions_of(row, row.gates);
  const logits = row.z && row.logits && row.logits.map((logit, j) =>
    logit === null ? null : logit + read_z(row, positions[j]) - read_z(row, before[j]));
  return { gates, positions, logits, pattern: logits && softmax_of(row, logits) };
}

// ---- Are they the engine's? The largest difference over the scale, for each that can be computed.
function check_row(row) {
  const positions = positions_of(row, row.gates), found = [["positions", positions]];
  if (row.z && row.scores && row.logits) {
    found.push(["logits", row.scores.map((score, j) => score + read_z(row, positions[j]))]);
  }
  if (row.logits && row.pattern) found.push(["pattern", softmax_of(row, row.logits)]);
  return found.map(([name, computed]) => {
    const scale = Math.max(...row.keys.map((j) => Math.abs(row[name][j]))) || 1;
    return { name, difference: Math.max(...row.keys.map((j) => Math.abs(computed[j] - row[name][j]))) / scale };
  });
}

function check_words(row) {
  const found = check_row(row), equal = found.every(({ difference }) => difference <= 1e-6);
  const numbers = found.map(({ name, difference }) => `${name} ${format(difference, 2)}`).join(", ");
  const verdict = equal ? "they are the engine\u2019s. "
    : "they differ from the engine\u2019s (another scheme adds, or p is read otherwise). ";
  return check_line(equal, `Positions, logits and attention are computed on this page, from the gates: ${verdict}`,
    `Largest difference, as a share of the largest number: ${numbers}.`);
}

// ---- State of the gates: the engine's, or moved by hand as long as the row stays
const hand = { row: "", gates: null };
function gates_now(row) {
  const key = [state.run, state.beside, state.layer, state.head, state.i].join(" ");
  if (hand.row !== key) Object.assign(hand, { row: key, gates: null });
  return hand.gates ?? row.gates;
}

function set_gate(j, value, redraw) {
  const row = loupe_row();
  if (!row.keys.includes(j)) return;
  hand.gates = [...gates_now(row)];
  hand.gates[j] = clamped(value, 0, 1);
  redraw();
}

// ---- Charts over the keys
const loupe_charts = [["gates", "gates g (drag one)"], ["positions", "positions p: gates summed from the query on"],
                      ["logits", "logits A"], ["pattern", "pattern P"]];

function draw_staircase(container, row, now) {
  const width = Math.max(320, Math.floor(container.clientWidth)), charts = loupe_charts.filter(([name]) => now[name]);
  const frames = charts.map(([name, title], index) => loupe_strip({ name, title, now: now[name], engine: row[name],
    limit: row.limit, width, last: index === charts.length - 1 }));
  container.replaceChildren(...frames.map((frame) => frame.picture));
  return frames[0];
}

// The numbers of now, and the engine's as a line of dashes.
function loupe_strip({ name, title, now, engine, limit, width, last }) {
  const reach = name === "gates" ? [0, 1] : reach_of([...now, ...engine]);
  const marks = name === "positions" && Number.isFinite(limit) ? [{ value: limit, text: "p_max" }] : [];
  const label = `${title} of query ${state.i}: ${now.map((value) => format(value, 3)).join(" ")}`;
  const frame = strip({ label, values: now, width, last, labels: tokens, word: word_of("j"), marks, reach });
  if (name === "positions") steps(frame, now);
  else columns(frame, now, name === "gates" ? "gate" : "stem");
  trace(frame, engine, "engine", false);
  if (name === "logits" || name === "pattern") trace(frame, now);
  const x = frame.x_of(state.j);
  frame.add(svg_line("follow", [x, frame.top - 4], [x, frame.floor]), svg_text("title", frame.left, 12, title),
    svg_text("now end", width - frame.right, 12, `key ${state.j}: ${shown(now[state.j])}`));
  return frame;
}

function columns(frame, values, name) {
  const half = 0.36 * (frame.x_of(1) - frame.x_of(0));
  values.forEach((value, j) => {
    const ends = [frame.y_of(value), frame.y_of(0)], y = Math.min(...ends), height = Math.max(1, Math.max(...ends) - y);
    const column = draw("rect", { class: name, x: frame.x_of(j) - half, width: 2 * half, y, height });
    if (Number.isFinite(value)) frame.add(column);
  });
}

// The staircase: each key's step is as high as its gate.
function steps(frame, values) {
  const half = (frame.x_of(1) - frame.x_of(0)) / 2;
  const path = values.map((value, j) => {
    const to = `${frame.y_of(value)}H${frame.x_of(j) + half}`;
    if (!Number.isFinite(value)) return "";
    return Number.isFinite(values[j - 1]) ? `V${to}` : `M${frame.x_of(j) - half} ${to}`;
  });
  frame.add(draw("path", { class: "trace", d: path.join("") }));
}

// ---- z over positions, with the point that (i, j) reads and its slope
function z_curve(row, now, width) {
  const { z, exchanged } = row, p = now.positions[state.j], reach = reach_of(z);
  const { low, high, w, of_high } = between(row, p);
  const label = `z of query ${state.i} over whole positions: ${z.map((value) => format(value, 3)).join(" ")}`;
  const frame = chart({ label, width, height: 240, bottom: 32, x: [-0.5, z.length - 0.5], y: reach });
  grid(frame, reach);
  index_axis(frame, null, z.length, "n");
  trace(frame, z);
  frame.add(svg_text("title", frame.left, 12, `z over positions n of query ${state.i}`),
    ...[low, high].map((n) => dot(frame, "row-read", n, z[n], 5)));
  const slope = exchanged ? z[low] - z[high] : z[high] - z[low], value = read_z(row, p), far = 0.8;
  const place = (position, of_z) => [frame.x_of(position), frame.y_of(of_z)];
  if (of_high !== w) {  // where the curve has what is read
    frame.add(svg_line("leader", place(p, value), place(low + of_high, value)),
      dot(frame, "row-read", low + of_high, value, 3));
  }
  if (high > low) {
    frame.add(svg_line("tangent", place(p - far, value - far * slope), place(p + far, value + far * slope)));
  }
  frame.add(dot(frame, "point", p, value, 5));
  const sum = exchanged ? "w z[floor] + (1\u2212w) z[ceil]" : "(1\u2212w) z[floor] + w z[ceil]";
  const rise = exchanged ? "z[floor] \u2212 z[ceil]" : "z[ceil] \u2212 z[floor]";
  return { picture: frame.picture, facts: [["position p", p], ["floor of p: row", low], ["ceiling of p: row", high],
    ["w = p \u2212 floor p", w], ["z at the floor", z[low]], ["z at the ceiling", z[high]],
    [`read: ${sum}`, value], [`slope dA/dp = ${rise}`, slope]] };
}

function slope_words({ limit, exchanged }, p) {
  const slope = p >= limit ? "p is at p_max: the clamp passes no gradient to the gates."
    : Number.isInteger(p) ? "p is whole: floor and ceiling are one row, so that the slope is 0."
    : "The slope is by how much this logit changes for each unit that a gate between j and the query is moved by, " +
      "until p reaches the next row.";
  return slope + (exchanged ? " Equation 5 exchanges the weights: what is read jumps at each whole position, and " +
    "falls between two of them where the curve rises." : "");
}

export function draw_loupe() {
  const row = loupe_row();
  if (!row) return stage.append(note(`No gates and positions recorded for ${place_words()}.`));
  const redraw = () => show_loupe(parts), parts = {
    title: make("h3"), check: make("div"), follows: make("div"), slider_name: make("span"), value: make("output"),
    slider: make("input", { type: "range", min: 0, max: 1, step: "any", "data-focus": "gate", "data-key": "gate",
      oninput: ({ target }) => set_gate(state.j, Number(target.value), redraw) }),
    charts: make("div", { class: "strips drag", tabindex: 0, role: "application", "data-focus": "gates",
      "aria-label": "gates of the row: left and right choose a key, up and down move its gate",
      onkeydown: on_keys((key) => gate_moves[key], (move) => move_gate(move, redraw)) }),
    side: make("div", { class: "loupe-side" }),
  };
  const { title, check, follows, slider_name, value, slider, charts, side } = parts;
  const reset = button("as the engine has them", "reset", () => {
    hand.gates = null;
    redraw();
  });
  stage.append(title, check, make("p", { class: "gate-bar" }, make("label", {}, slider_name, slider), value, reset),
    follows, make("div", { class: "beside" }, charts, side));
  drag_gates(parts, redraw);
  of_selection(redraw);
}

function show_loupe(parts) {
  const { title, check, follows, charts, slider, slider_name, value, side } = parts;
  const row = loupe_row(), gates = gates_now(row), now = moved(row, gates), seen = row.keys.includes(state.j);
  const place = `layer ${state.layer}, head ${state.head}${run_words()}`;
  title.replaceChildren("Query ", token_name(state.i), ", key ", token_name(state.j), `, ${place}`);
  check.replaceChildren(check_words(row));
  slider_name.replaceChildren("gate of key ", token_name(state.j));
  slider.disabled = !seen;
  slider.value = gates[state.j];
  value.textContent = seen ? `${shown(gates[state.j])} (engine ${shown(row.gates[state.j])})` : "masked";
  follows.replaceChildren(...[moved_words(row, now)].filter(Boolean));
  parts.gates = draw_staircase(charts, row, now);
  side.replaceChildren(...loupe_facts(row, now, seen, side.clientWidth));
}

function loupe_facts(row, now, seen, width) {
  if (!seen) return [note("The mask hides this key from this query.")];
  if (!row.z) return [note("z is not recorded: positions move, logits stay.")];
  const { picture, facts } = z_curve(row, now, Math.max(320, width));
  const all = [...facts, ["score S, of the content", row.scores?.[state.j]], ["logit A", now.logits?.[state.j]],
    ["pattern P", now.pattern?.[state.j]]];
  return [picture, facts_table("of this pair", "now", all.filter(([, each]) => each != null), { class: "facts" }),
    note(slope_words(row, now.positions[state.j]))];
}

// The pattern is computed again, what stands behind it is not: there the gradient of the pattern says what follows.
function moved_words(row, now) {
  const gradient = sheet_of("pattern", "gradient", state, single_run()), here = predictions()[state.i];
  if (now.gates === row.gates) {
    return here && make("p", { class: "moved" }, "With the engine\u2019s gates the model gives the wanted answer ",
      answer_name(here.wanted[0]), ` ${percent(here.wanted[1])}. Drag one.`);
  }
  if (!gradient || !now.pattern) return null;
  const { layer, head, i, j } = state;
  const change = sum_of(row.keys.map((key) => (now.pattern[key] - row.pattern[key]) * value_at(gradient, i, key)));
  const answer = here && layer === data.layers - 1
    ? [", and the wanted answer ", answer_name(here.wanted[0]), ` from ${percent(here.wanted[1])} to about ` +
        percent(clamped(here.wanted[1] * Math.exp(-change * asked().length), 0, 1))] : [];
  const edit = `"gates layer=${layer} head=${head} i=${i} j=${j} = ${format(now.gates[j], 3)}"`;
  return make("p", { class: "moved" }, `With these gates the loss changes by about ${format(change, 3)}`, ...answer,
    ". The head is computed again; what stands behind it, by the gradient. ",
    command_code(`${data.command} --edit ${edit}`), "runs the whole model.");
}

const gate_moves =
  { ArrowLeft: { keys: -1 }, ArrowRight: { keys: 1 }, ArrowUp: { gate: 0.05 }, ArrowDown: { gate: -0.05 } };
function move_gate({ keys, gate }, redraw) {
  if (keys) choose({ j: clamped(state.j + keys, 0, tokens.length - 1) });
  else set_gate(state.j, gates_now(loupe_row())[state.j] + gate, redraw);
}

// The charts are drawn anew while a gate is dragged, so their container listens.
function drag_gates(parts, redraw) {
  const { charts } = parts;
  let dragged = null;
  charts.addEventListener("pointerdown", (event) => {
    const { x, y } = parts.gates.at(event), j = Math.round(x);
    if (j < 0 || j >= tokens.length) return;
    choose({ j });
    dragged = y > -0.1 && y < 1.2 ? j : null;
    charts.setPointerCapture(event.pointerId);
  });
  charts.addEventListener("pointermove", (event) => {
    if (dragged !== null) set_gate(dragged, parts.gates.at(event).y, redraw);
  });
  for (const end of ["pointerup", "pointercancel"]) charts.addEventListener(end, () => dragged = null);
}

export const loupe_view = {
  key: "loupe", title: "Loupe",
  wants: () => !data.overview && ["gates", "positions"].every((name) => data.all.has(name)),
  hint: "Move one gate and look at everything left of it: a gate adds to the position of every earlier key.",
  controls: () => ["layer", "head"],
  readout: (at) => [`${place_words()}, query `, token_name(at.i), ", key ", token_name(at.j), ": ",
    ...loupe_charts.map(([name]) => part_value(name)).filter(Boolean)
      .flatMap((found) => reading(found.title, text_at(found, at)))],
  draw: draw_loupe,
};
