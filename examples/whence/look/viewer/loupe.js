// View: one pair (i, j) under a loupe: the gates of its row, the positions that they add up to, logits and attention,
// and what the pair reads of z. The row can be moved as in the story.
import { button, counted, format, make, note, svg_line, svg_text } from "./elements.js";
import { state } from "./state.js";
import { data, sheet_of } from "./data.js";
import { facts_table, follow_pointer, of_selection, place_words, reading, run_words, single_run, stage, token_name, update } from "./frame.js";
import { text_at } from "./map.js";
import { chart, columns, dot, grid, index_axis, reach_of, row_of, seen_columns, trace } from "./curves.js";
import { at_knob, draw_turn, knob, moved_strip, row_at, steps, stop_shown, to_knob } from "./knob.js";
import { made_of, number_of } from "./worked.js";
import { has_engine } from "./engine.js";

// ---- The engine's numbers of row i, and those of the pass with a moved number
function part_here(name, kind = "value") {
  const found = sheet_of(name, kind, state, single_run());
  return found && found.rows > state.i ? found : null;
}
const turns = () => single_run() === "this" && (has_engine || at_knob());
const stop_here = () => turns() && !stop_shown()?.problem ? stop_shown() : null;

const names = ["gates", "positions", "z", "position_logit", "scores", "logits", "pattern"];
function loupe_row() {
  const parts = names.map((name) => part_here(name)), [gates, positions] = parts;
  if (!gates || !positions) return null;
  const seen = seen_columns(gates, state.i);
  const row = Object.fromEntries(names.map((name, k) =>
    [name, parts[k] && row_of(parts[k], state.i).slice(0, name === "z" ? parts[k].columns : seen)]));
  return { ...row, keys: counted(seen).filter((j) => row.gates[j] !== null), marks: positions.marks };
}
function row_now(row) {
  const stop = stop_here();
  return stop ? { ...row, ...Object.fromEntries(stop.rows.map(({ probe }) => [probe, row_at(stop, probe)])) } : row;
}

// ---- Charts over the keys
const loupe_charts = [["gates", "gates g"], ["positions", "positions p"], ["logits", "logits A"], ["pattern", "pattern P"]];
function draw_charts(container, row, now) {
  const width = Math.max(320, Math.floor(container.clientWidth));
  const charts = loupe_charts.filter(([name]) => now[name] && !(turns() && name === "gates"));
  const shapes = { gates: columns("gate"), positions: steps };
  const frames = charts.map(([name, title], index) => moved_strip({ title, now: now[name], own: row[name], query: state.i,
    key: state.j, marks: name === "positions" ? row.marks : [], width, last: index === charts.length - 1,
    ...(name === "gates" ? { reach: [0, 1] } : {}), shape: shapes[name] ?? columns("gate") }));
  for (const frame of frames) follow_pointer(frame.picture, (event) => {
    const j = Math.round(frame.at(event).x);
    return j >= 0 && j < row.gates.length ? { j } : null;
  });
  container.replaceChildren(...frames.map((frame) => frame.picture));
}

// ---- z over positions, with what (i, j) reads there and, for unmoved gates, the recorded derivative
function slope_here() {
  const read = number_of(data.all.get("position_logit")), as_recorded = single_run() === "this" && !stop_here();
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
  return [row.z && z_curve(row, slope, Math.max(320, width)), facts, ...stop_here() ? [] : stops_here()].filter(Boolean);
}

// ---- The view
export function draw_loupe() {
  if (!loupe_row()) return stage.append(note(`No gates and positions recorded for ${place_words()}.`));
  const title = make("h3"), turn = make("section", { class: "turn" }), charts = make("div", { class: "strips loupe" });
  const side = make("div", { class: "loupe-side" });
  stage.append(title, turn, make("div", { class: "beside" }, charts, side));
  function draw_rest() {
    const row = loupe_row(), now = row_now(row), { layer, head, i, j } = state;
    title.replaceChildren(`Layer ${layer}, head ${head}, query `, token_name(i), ", key ", token_name(j), run_words());
    draw_charts(charts, row, now);
    side.replaceChildren(...sides_of(now, side.clientWidth));
  }
  let show = null;
  of_selection(() => {
    if (!turns()) {
      show = null;
      turn.replaceChildren(knob() ? make("p", {}, "One number of this page can be moved: that of ",
        button("the story\u2019s pair", "to knob", () => update(to_knob())), ".") : "");
      return draw_rest();
    }
    if (!show) turn.replaceChildren(), show = draw_turn(turn, draw_rest);
    show();
    return null;
  });
}

export const loupe_view = {
  key: "loupe", title: "Loupe", group: "Explore",
  wants: () => ["gates", "positions"].every((name) => data.all.has(name)),
  hint: "Look at one gate and at everything left of it: a gate adds to the position of every earlier key.",
  controls: () => ["layer", "head"],
  readout: (at) => [`${place_words()}, query `, token_name(at.i), ", key ", token_name(at.j), ": ",
    ...loupe_charts.map(([name]) => part_here(name)).filter(Boolean)
      .flatMap((found) => reading(found.title, text_at(found, at)))],
  draw: draw_loupe,
};
