// The picture of a scheme at the selected pair, which its registration names (nn/scheme_registry.h): steps of the story, and the
// lower part of the view "heads".
import { clamped, counted, draw, dress, folded, format, make, name_cell, on_keys, sum_of, svg_line, svg_text, table_of } from "./elements.js";
import { state } from "./state.js";
import { data, decode, measured, part_of, run_named, sheet_of, short, tokens, value_at } from "./data.js";
import { check_line, choose, follow_pointer, number_cell, place_words, shown, single_run, stage, token_name } from "./frame.js";
import { chart, dot, grid, is_apart, path_through, reach_of, seen_columns } from "./curves.js";
import { moved_row } from "./knob.js";

// ---- A scheme's quantities and their numbers
const own = ({ name }) => measured.filter((each) => each.scheme_name === name && part_of(each, state.layer));
const ending = (scheme, words) => own(scheme).find(({ name }) => name.endsWith(words));
const of_pairs = (scheme) => own(scheme).filter(({ axes }) => axes === "h i j").at(-1);
const named = (name) => measured.find((each) => each.name === name);
const sheet_at = (quantity, at) => quantity && sheet_of(quantity.name, "value", { ...state, ...at }, single_run());
// Returns a number that the mask may hide, and 0 beside the sheet, as a convolution reads it.
const raw_at = ({ cells, columns }, row, column) => column < 0 || column >= columns ? 0 : cells[row * columns + column];
const keys_of_row = (sheet) => sheet && state.i < sheet.rows ? seen_columns(sheet, state.i) : 0;
const row_to = (sheet, count) => counted(count).map((j) => value_at(sheet, state.i, j));
// Returns the moved numbers of the selected head's row, or null where none moves beyond rounding.
function moved_from(name, numbers) {
  const row = moved_row(name)?.slice(0, numbers.length);
  return row?.some((value, j) => is_apart(value, numbers[j])) ? row : null;
}
const strong = (value) => make("b", {}, shown(value));
const pair_words = () => ["from the query ", token_name(state.i), " to the key ", token_name(state.j)];

// Says whether a sum is a recorded number, but for rounding; `size`: the sum of sizes.
function agreement(sum, recorded, size, words) {
  const off = Math.abs(sum - recorded) / (size || 1);
  return check_line(off <= 1e-5, words, `: ${format(off, 2)} of the sum of sizes apart (1e-5 allowed).`, sum);
}

// ---- The frame: keys take the next key and head
const room = () => Math.min(920, stage.clientWidth > 1000 ? stage.clientWidth - 460 : stage.clientWidth - 8);
const moves = { ArrowLeft: ["j", -1], ArrowRight: ["j", 1], ArrowUp: ["head", -1], ArrowDown: ["head", 1] };
function framed({ name }, title, ...children) {
  const focus = `picture ${name}`, last = { j: data.causal ? state.i : tokens.length - 1, head: data.heads - 1 };
  const move = ([key, by]) => {
    choose({ [key]: clamped(state[key] + by, 0, last[key]) });
    document.querySelector(`[data-focus="${focus}"]`).focus({ preventScroll: true });
  };
  return make("div", { class: "strips drawn", style: `max-width: ${room()}px`, tabindex: 0, role: "application", "data-focus": focus,
    "aria-label": `${title}; left and right take the next key, up and down the next head`, onkeydown: on_keys((key) => moves[key], move) }, children);
}

// Draws curves over the keys of the row: key j is at x[j], where the selected head has y[j]. A click takes the nearest key.
function by_key({ title, word, x, y, all = y, ends = [Math.min(0, ...x), Math.max(1, ...x)], curves }) {
  const reach = reach_of(all), label = `${title}: ${y.map(shown).join(" ")}`;
  const frame = chart({ label, width: room(), height: 220, bottom: 36, x: ends, y: reach });
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((each) => each * (frame.x_of(1) - frame.x_of(0)) >= 32) ?? 1000;
  grid(frame, reach);
  for (let at = Math.ceil(ends[0] / step) * step; at <= ends[1]; at += step) frame.add(svg_text("tick middle", frame.x_of(at), frame.floor + 15, at));
  const line = draw("line", { class: "follow", y1: frame.top - 4, y2: frame.floor }), point = draw("circle", { class: "chosen", r: 6 });
  const now = svg_text("now end", frame.width - frame.right, 12, ""), middle = (frame.left + frame.width - frame.right) / 2;
  frame.add(svg_text("tick middle", middle, frame.floor + 31, word), svg_text("title", frame.left, 12, title), ...curves(frame), line, point, now);
  follow_pointer(frame.picture, (event) => {
    const away = x.map((each) => Math.abs(each - frame.at(event).x));
    return { j: away.lastIndexOf(Math.min(...away)) };
  });
  const follow = ({ j }) => {
    const key = Math.min(j, x.length - 1), across = frame.x_of(x[key]);
    dress(line, { x1: across, x2: across });
    dress(point, { cx: across, cy: frame.y_of(y[key]) });
    now.textContent = shown(y[key]);
  };
  follow(state);
  return [frame.picture, follow];
}
const curve = (frame, name, x, y) =>
  path_through(name, x.map((each, k) => `${frame.x_of(each).toFixed(1)} ${frame.y_of(y[k]).toFixed(1)}`));
const dots = (frame, name, x, y, r) => x.map((each, k) => dot(frame, name, each, y[k], r));

// ---- A term of the logit by distance, of every head
const back = "distance from the query back to the key";
function distance(scheme) {
  const quantity = of_pairs(scheme), count = keys_of_row(sheet_at(quantity)), { i, j, head } = state;
  if (j >= count) return null;
  const rows = counted(data.heads).map((each) => row_to(sheet_at(quantity, { head: each }), count)), y = rows[head];
  const x = counted(count).map((key) => i - key), title = `${quantity.name} by distance`, moved = moved_from(quantity.name, y);
  const [picture, follow] = by_key({ title: `${title}, head ${head}`, word: back, x, y, all: [...rows.flat(), ...moved ?? []], curves: (frame) =>
    [...rows.map((row) => curve(frame, "faint", x, row)), curve(frame, "curve c0", x, y), ...moved ? [curve(frame, "curve c1", x, moved)] : []] });
  return { title, follow, element: framed(scheme, title, picture), words: [`Blue is head ${head}, grey are the others. ${quantity.name} of `,
    strong(y[j]), ` joins the score ${i - j} tokens back, `, ...pair_words(), "."] };
}

// ---- A term of the logit by position: z, and on it the keys of the row
function positions(scheme) {
  const [at, term, z] = [ending(scheme, "positions"), of_pairs(scheme), ending(scheme, "z")].map((each) => sheet_at(each));
  const count = keys_of_row(term), { i, j } = state;
  if (!at || j >= count) return null;
  const [x, y] = [at, term].map((sheet) => row_to(sheet, count)), title = `${term.name} by position`, here = x[j], low = Math.floor(here);
  const moved = moved_from(at.name, x), moved_y = moved && moved_row(term.name), rows = z ? z.columns - 1 : 0;
  const last = Math.min(rows, Math.max(8, Math.ceil(1.5 * Math.max(...x, ...moved ?? [])))), whole = counted(last + 1);
  const order = counted(count).sort((one, other) => x[one] - x[other]);
  const line = z ? [whole, whole.map((n) => z.cells[i * z.columns + n])] : [x, y].map((numbers) => order.map((key) => numbers[key]));
  const between = z && low < here ? [low, low + 1] : [];
  const [picture, follow] = by_key({ title: z ? `z of query ${i}, and its keys` : title, word: z ? `position, of 0 to ${rows}` : "position", x, y,
    all: [...line[1], ...y, ...moved_y ?? []], ends: z ? [0, last] : undefined, curves: (frame) => [curve(frame, "curve c0", ...line),
      ...dots(frame, "dot", x, y, 3), ...between.map((n) => dot(frame, "chosen", n, line[1][n], 3.5)),
      ...moved ? [...dots(frame, "dot turned", moved, moved_y, 2), dot(frame, "dot turned", moved[j], moved_y[j], 5)] : []] });
  return { title, follow, element: framed(scheme, title, picture), words: ["Dots are the keys of this query. The key ", token_name(j),
    " is at the position ", strong(here), ...between.map((n, k) => [k ? " and " : ", between the rows ", `${n} (`, strong(line[1][n]), ")"]).flat(),
    "; its score gets ", strong(y[j]), ".", ...moved ? [" Orange, after your move: ", strong(moved[j]), " and ", strong(moved_y[j]), "."] : []] };
}

// ---- The score by distance: the content of this query and this key, with the key at every place of the row
// Pairs of dims turn. A token's turn is read off its vector before and after, whatever its speed. RePo's width is no number of dims.
function turn(scheme) {
  const before = (letter) => sheet_at(named(`normed_${letter}`) ?? named(letter)), after = (letter) => sheet_at(ending(scheme, `rotated_${letter}`));
  const [q, k, rq, rk, scores] = [before("q"), before("k"), after("q"), after("k"), sheet_at(named("scores"))], { i, j } = state;
  const count = keys_of_row(scores);
  if (![q, k, rq, rk].every(Boolean) || j >= count) return null;
  const text = ending(scheme, "rotated_q").scheme, dims = q.columns, width = Number(/^(?!repo).*\bwidth=([1-9]\d*)/.exec(text)?.[1] ?? dims);
  const pairs = counted(width / 2).map((m) => /layout=interleaved/.test(text) ? [2 * m, 2 * m + 1] : [m, m + width / 2]);
  const polar = (sheet, row) => pairs.map((pair) => pair.map((d) => raw_at(sheet, row, d)))
    .map(([a, b]) => ({ size: Math.hypot(a, b), angle: Math.atan2(b, a) }));
  const turned = (plain, rotated, row) => {
    const to = polar(rotated, row);
    return polar(plain, row).map(({ size, angle }, m) => ({ by: to[m].angle - angle, grown: size ? to[m].size / size : 1 }));
  };
  const of_q = polar(q, i), of_k = polar(k, j), turned_q = turned(q, rq, i), turned_k = counted(count).map((key) => turned(k, rk, key));
  const angles = turned_k.map((all) => all.map(({ by }, m) => turned_q[m].by - by));
  const adds = turned_k.map((all, key) => all.map(({ grown }, m) => of_q[m].size * turned_q[m].grown * of_k[m].size * grown *
    Math.cos(of_q[m].angle - of_k[m].angle + angles[key][m]) / Math.sqrt(dims)));
  const still = sum_of(counted(dims - width).map((d) => raw_at(rq, i, width + d) * raw_at(rk, j, width + d))) / Math.sqrt(dims);
  const x = counted(count).map((key) => i - key), y = adds.map((all) => still + sum_of(all)), title = "the score by distance";
  const [picture, follow] = by_key({ title: `score of this content, head ${state.head}`, word: back, x, y,
    curves: (frame) => [curve(frame, "curve c0", x, y)] });
  const check = agreement(y[j], value_at(scores, i, j), sum_of([still, ...adds[j]].map(Math.abs)), "The curve here is the recorded score");
  const around = angles[j].map((angle) => Math.atan2(Math.sin(angle), Math.cos(angle)));
  const table = () => table_of(["pair", "turned by", "adds"], pairs.map((_, m) => [name_cell(m), number_cell(around[m]), number_cell(adds[j][m])]));
  return { title, follow, element: framed(scheme, title, picture, dials(around, adds[j]), check, folded("as a table", table)), words: [
    "The query and the key keep their content; the distance alone changes. Each pair of dims turns with it, and adds the most where the two ",
    `contents point the same way. At ${i - j} tokens, `, ...pair_words(), ", the score is ", strong(y[j]), "."] };
}
// A dial for each pair: its angle, and as a bar what it adds to the score.
function dials(angles, adds) {
  const wide = 36, tall = 74, width = room(), across = Math.max(1, Math.floor(width / wide)), most = Math.max(...adds.map(Math.abs)) || 1;
  const one = (angle, m) => {
    const x = wide * (m % across) + 16, y = 38 + tall * Math.floor(m / across), bar = 18 * adds[m] / most;
    return draw("g", {}, draw("title", {}, `pair ${m}: turned by ${format(angle, 3)}, adds ${format(adds[m], 3)}`),
      draw("circle", { class: "dial", cx: x, cy: y, r: 12 }), svg_line("curve c0", [x, y], [x + 12 * Math.cos(angle), y - 12 * Math.sin(angle)]),
      svg_line("grid", [x - 9, y + 34], [x + 9, y + 34]),
      draw("rect", { class: "gate", x: x - 6, width: 12, y: y + 34 - Math.max(0, bar), height: Math.max(1, Math.abs(bar)) }));
  };
  const viewBox = `0 0 ${width} ${22 + tall * Math.ceil(angles.length / across)}`, label = `angles of the pairs: ${angles.map(shown).join(" ")}`;
  return draw("svg", { viewBox, role: "img", "aria-label": label },
    svg_text("title", 0, 12, "pairs, fastest first: angle, and what it adds"), angles.map(one));
}

// ---- Heads in, network, heads out: at this key, or through taps over its neighbours
// Returns the network's inputs [{ name, at(head, key) }].
function inputs_of(scheme, channels, form) {
  const map = ending(scheme, "conv_in"), bias = data.schemes.slice(data.schemes.indexOf(scheme) + 1).map(of_pairs).find(Boolean);
  const reads = (quantity) => quantity && { name: quantity.name, at: (head, key) => raw_at(sheet_at(quantity, { head }), state.i, key) };
  const scores = reads(named("scores")), biases = reads(bias);
  if (form === "f_of_bias") return [biases];
  if (form === "add_residual") return [{ name: "both", at: (...place) => scores.at(...place) + biases.at(...place) }];
  const all = channels > data.heads ? [scores, biases] : [scores];
  const read_of = (group) => (head, key) => raw_at(sheet_at(map, { c: group * data.heads + head }), state.i, key);
  return map ? all.map(({ name }, group) => ({ name, at: read_of(group) })) : all;
}

function network_of(scheme) {
  const run = run_named(single_run()), output = of_pairs(scheme), hidden = ending(scheme, "_hidden"), { i, j, head } = state;
  const path = `.${output?.probe.replace(/\w+$/, "")}`, out = sheet_at(output), heads = counted(data.heads);
  const parameter = (name) => run.parameters.find((each) =>
    (each.layer === state.layer || each.layer === null) && `.${each.path}`.endsWith(path + name));
  const [w1, w2, b2] = ["hidden.weight", "output.weight", "output.bias"].map(parameter);
  if (!hidden || !w1 || !w2 || !b2 || j >= keys_of_row(out)) return null;
  const [units, channels] = w1.shape, taps = w2.shape[3] ?? 1, left = /pad=left/.test(output.scheme) ? taps - 1 : Math.floor(taps / 2);
  const [first, second] = [w1, w2].map((each) => decode(each, "value")), keys = counted(taps).map((tap) => j + tap - left);
  const groups = inputs_of(scheme, channels, /form=(\w+)/.exec(output.scheme)?.[1]);
  const read = keys.map((key) => groups.flatMap(({ at }) => heads.map((each) => at(each, key))));
  const values = keys.map((key) => counted(units).map((c) => raw_at(sheet_at(hidden, { c }), i, key)));
  const given = values.map((all, tap) => all.map((value, unit) => value * second[(head * units + unit) * taps + tap]));
  // A unit reads the neighbours of its own key; those that are no neighbours of j are not drawn.
  const reads = ({ tap, unit }) => read.flatMap((all, from) => {
    const at = from - tap + left;
    return at < 0 || at >= taps ? [] : all.map((value, c) => ({ from, c, value: value * first[(unit * channels + c) * taps + at] }));
  });
  const parts = given.flatMap((all, tap) => all.map((value, unit) => ({ value, tap, unit })));
  const tap_names = keys.map((key) => key === j ? "j" : `j${key < j ? "\u2212" : "+"}${Math.abs(key - j)}`);
  return { name: output.name, keys, tap_names, groups, read, values, given, parts, reads, bias: decode(b2, "value")[head],
    outs: heads.map((each) => value_at(sheet_at(output, { head: each }), i, j)) };
}
const largest = (list, count) => [...list].sort((one, other) => Math.abs(other.value) - Math.abs(one.value)).slice(0, count);

function network(scheme) {
  const made = network_of(scheme);
  if (!made) return null;
  const { name, keys, given, parts, bias, outs, tap_names } = made, { head } = state, wide = keys.length > 1;
  const title = wide ? `${keys.length} taps over neighbouring keys` : "heads in, network, heads out";
  const most = largest(parts, 2).map(({ unit, value }, k) => [k ? " and " : "", `unit ${unit} (`, strong(value), ")"]);
  const of_taps = given.map((all, tap) => [`, ${tap_names[tap]} `, strong(sum_of(all))]);
  const all = [bias, ...parts.map(({ value }) => value)];
  const check = agreement(sum_of(all), outs[head], sum_of(all.map(Math.abs)), `They add up to ${name}`);
  return { title, element: framed(scheme, title, network_picture(made), check, folded("as a table", () => network_tables(made))), words: [
    wide ? `Units read all heads at neighbouring keys; ${keys.length} taps read the units. ` : "Units read all heads at this pair. ",
    `Head ${head}, `, ...pair_words(), `: ${name} is `, strong(outs[head]), ": b2 ", strong(bias),
    ...wide ? of_taps : [` and ${parts.length} units, most of it `, ...most], ". Green lines raise what they lead to, purple ones lower it."] };
}
function network_tables({ name, groups, read, given, outs, tap_names }) {
  const each = (words) => tap_names.map((tap) => given.length > 1 ? `${words}, ${tap}` : words), cells = (numbers) => numbers.map(number_cell);
  return [table_of(["head", ...groups.flatMap((group) => each(group.name)), name], outs.map((out, head) => [name_cell(head),
    ...cells(groups.flatMap((_, group) => read.map((all) => all[group * outs.length + head]))), number_cell(out)])),
  table_of(["unit", ...each("gives")], given[0].map((_, unit) => [name_cell(unit), ...cells(given.map((all) => all[unit]))]), { class: "given" })];
}

// Draws bars between two places across, of a common scale.
function bars(picture, from, to, numbers) {
  const [low, high] = reach_of(numbers), x_of = (value) => from + (to - from) * (value - low) / (high - low);
  return {
    axis: (y, tall) => picture.append(svg_line("grid", [x_of(0), y], [x_of(0), y + tall])),
    bar(y, tall, value, words, name = "gate") {
      const x = Math.min(x_of(0), x_of(value)), wide = Math.max(1, Math.abs(x_of(value) - x_of(0)));
      picture.append(draw("rect", { class: name, x, width: wide, y: y - tall / 2, height: tall }, draw("title", {}, `${words}: ${format(value)}`)));
    },
  };
}

// A band for each tap: bars of the inputs, then of the units. At the right are the heads' outputs.
function network_picture({ name, keys, tap_names, groups, read, values, given, parts, reads, outs }) {
  const width = room(), taps = keys.length, units = values[0].length, heads = outs.length, gap = 28, top = 42;
  const band = Math.max(groups.length * heads * (taps > 1 ? 8 : 14) + 8, units * (taps > 1 ? 3 : 5)), height = top + taps * (band + gap) - gap + 4;
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${name} by head: ${outs.map(shown).join(" ")}` });
  const write = (kind, x, y, words) => picture.append(svg_text(kind, x, y, words));
  const chosen = (x, y, wide, tall) => picture.append(draw("rect", { class: "chosen", x, y, width: wide, height: tall }));
  const [in_end, unit_start, unit_end, out_start] = [0.34, 0.45, 0.62, 0.78].map((share) => share * width);
  const ins = bars(picture, 56, in_end, read.flat()), middle = bars(picture, unit_start, unit_end, values.flat());
  const right = bars(picture, out_start, width - 56, outs), down = Math.min(24, (height - top) / heads);
  const start = (tap) => top + tap * (band + gap), step = band / units, tall = (band - 8) / (groups.length * heads);
  const of_unit = (tap, unit) => start(tap) + (unit + 0.5) * step, of_input = (tap, c) => start(tap) + (c + 0.5) * tall + 8 * Math.floor(c / heads);
  const of_head = (head) => (top + height - down * heads) / 2 + (head + 0.5) * down;
  [[56, "heads in"], [unit_start, `${units} units`], [out_start, "heads out"]].forEach(([x, words]) => write("title", x, 12, words));
  const line = (x, y, to_x, to_y, value, most) => picture.append(draw("path", { class: value < 0 ? "given minus" : "given",
    "stroke-width": 0.6 + 2.6 * Math.abs(value / most), d: `M${x} ${y}C${(x + to_x) / 2} ${y} ${(x + to_x) / 2} ${to_y} ${to_x} ${to_y}` }));
  const strongest = largest(parts, 5);
  for (const part of strongest) {
    const y = of_unit(part.tap, part.unit), from = largest(reads(part), 2);
    line(unit_end, y, 0.725 * width, of_head(state.head), part.value, strongest[0].value);
    for (const { from: tap, c, value } of from) line(in_end + 4, of_input(tap, c), unit_start - 2, y, value, from[0].value);
  }
  keys.forEach((key, tap) => {
    const token = tokens[key] === undefined ? "beside the text: 0" : `key ${key} \u2018${short(tokens[key])}\u2019`;
    ins.axis(start(tap), band), middle.axis(start(tap), band);
    write("tick", 0, start(tap) - 8, taps > 1 ? `${tap_names[tap]}: ${token}` : token);
    if (taps > 1) write("tick", unit_start, start(tap) - 8, `gives ${format(sum_of(given[tap]), 3)}`);
    read[tap].forEach((value, c) => {
      const { name: group } = groups[Math.floor(c / heads)], head = c % heads, y = of_input(tap, c);
      if (!head) write("tick", 0, y + (heads - 1) * tall / 2 + 4, group);
      if (taps === 1) write("tick end", 50, y + 4, head);
      ins.bar(y, tall - 2, value, `${group} of head ${head} at key ${key}`);
      if (head === state.head) chosen(53, y - tall / 2, in_end - 50, tall);
    });
    values[tap].forEach((value, unit) => middle.bar(of_unit(tap, unit), Math.max(1.5, step - 1), value, `unit ${unit} at key ${key}`));
  });
  right.axis(of_head(0) - down / 2, down * heads);
  outs.forEach((value, head) => {
    right.bar(of_head(head), Math.min(14, down - 4), value, `${name} of head ${head}`);
    write("tick end", out_start - 4, of_head(head) + 4, head);
    write("tick", width - 48, of_head(head) + 4, format(value, 3));
  });
  const moved = moved_row(name)?.[state.j] ?? outs[state.head];
  if (is_apart(moved, outs[state.head])) right.bar(of_head(state.head), 5, moved, "moved", "gate turned");
  chosen(0.73 * width, of_head(state.head) - down / 2 + 1, 0.27 * width - 1, down - 2);
  return picture;
}

// ---- Steps
const pictures = { heads: network, taps: network, turn, distance, positions };
export const picture_steps = () => data.schemes.filter(({ picture }) => pictures[picture]).map((scheme) => {
  let now = null;
  const nothing = () => ({ title: scheme.picture, words: [`Nothing to draw for ${place_words()} at this pair.`], element: "" });
  const title = () => `${scheme.name}: ${(now = pictures[scheme.picture](scheme) ?? nothing()).title}`;
  return { title, wants: () => own(scheme).length, tells: () => now.words, picture: () => [now.element, now.follow] };
});
