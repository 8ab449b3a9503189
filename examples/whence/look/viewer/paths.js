// View: the gradient of one vector, q, k, v or x of a token, split into the paths by which it came from the loss.
import {
  clamped, counted, draw, format, make, name_cell, norm_of, note, on_button_keys, right_cell, sum_of, svg_line,
  svg_text, table_of
} from "./elements.js";
import { start, state } from "./state.js";
import {
  data, decode, difference_words, letters_of, measured, run_named, run_shown, sheet_made, slice_of, tokens
} from "./data.js";
import {
  add_controls, number_cell, of_selection, place_words, reading, shown, stage, token_name, update
} from "./frame.js";
import { map_figure } from "./map.js";
import { end_of, letter_width } from "./curves.js";

const paths_of = (run) => run.paths.filter(({ layer }) => layer === state.layer);
add_controls({ of: { text: "gradient of", options: () => paths_of(data).map(({ of }) => of) } });
export const paths_to = (run, name = state.of) => paths_of(run).find(({ of }) => of === name);

// ---- Numbers
// Returns each path's norm and its part along the whole gradient; the latter add up to the whole's norm.
export function split(found, at) {
  const vector = found.axes === "t" ? at.i : slice_of(letters_of(found), found.shape, at).offset + at.i;
  const number = (holder, field) => decode(holder, field, 64)[vector];
  return { norm: number(found, "norm"), parts: found.paths.map((path) => ({ ...path, name: words_of(path, found.paths),
    norm: number(path, "norm"), along: number(path, "along") })) };
}

// Names a chain such as "k: position_logit > positions > gates > gate_logits" by a step that no other has, first by
// one between 0 and 1, such as gates; the table has the whole chain.
function words_of({ name }, all) {
  const [, end, chain] = /^(?:([qk]): )?(.*)$/.exec(name), steps = chain.split(" > ");
  const others = all.filter((other) => other.name !== name && (other.name.match(/^[qk](?=: )/)?.[0] ?? "") === (end ?? ""));
  const own = steps.filter((step) => !others.some((other) => other.name.replace(/^[qk]: /, "").split(" > ").includes(step)));
  const known = (step) => measured.find((quantity) => quantity.name === step);
  const by = own.find((step) => known(step)?.scale === "unit" && known(step).scheme) ?? own[0] ?? chain;
  return `by ${by}${end ? `, through the ${end === "q" ? "query" : "key"}` : ""}`;
}

const flow = { top: 30, bar: 14, side: 16, step: 18 };
const least_slot = () => state.digits ? 190 : 150;

function draw_bands(container, { parts, norm }, found) {
  const { open } = state, width = Math.max(container.clientWidth, parts.length * least_slot());
  const slot = (width - 2 * flow.side) / parts.length, most = sum_of(parts.map((part) => part.norm)) || 1;
  const labels = parts.map((part, index) => band_lines(part, letters_in(slot), index === open));
  const height = 180 + Math.max(3, ...labels.map((lines) => lines.length)) * flow.step;
  const largest = Math.max(...parts.map((part) => part.norm)) || 1;
  const scale = Math.min(0.55 * slot / largest, 0.9 * (width - 2 * flow.side) / most);
  const bars = { top: flow.top + flow.bar, floor: height - flow.top - flow.bar };
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", style: `min-width: ${width}px`,
    "aria-label": `paths of the gradient of ${found.of}, from the loss down` });
  let from = (width - most * scale) / 2;
  const bar = (y, label, label_y) => [
    draw("rect", { class: "end-bar", x: from, y, width: Math.max(2, most * scale), height: flow.bar }),
    svg_text("title middle", width / 2, label_y, label)];
  picture.append(...bar(flow.top, "loss", flow.top - 10), ...bar(bars.floor,
    `dLoss/d${found.of} of this token: norm ${shown(norm)}`, bars.floor + flow.bar + 18));
  parts.forEach((part, index) => {
    const middle = flow.side + (index + 0.5) * slot, wide = part.norm * scale;
    picture.append(band(part,
      { index, from, middle, wide, slot, lines: labels[index], open: index === open, ...bars }));
    from += wide;
  });
  container.replaceChildren(picture);
}

// A path's name in as many lines as it needs, broken between its steps, with its norm; or its steps if it is open.
const letters_in = (slot) => Math.floor((slot - 20) / letter_width);
function wrapped(name, room) {
  const lines = [];
  for (const word of name.split(" ")) {
    const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && longer.length <= room) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

function band_lines(part, room, open) {
  const name = wrapped(part.name, room), steps = part.steps.map((step) => `\u2193 ${end_of(step, room - 2)}`);
  const rest = open ? steps : part.along < 0 ? ["against it"] : [];
  return [...name.map((text) => ({ text: end_of(text, room), strong: true })),
    ...[shown(part.norm), ...rest].map((text) => ({ text, strong: false }))];
}

// A band leaves the loss next to its neighbours, is alone in its slot, and joins them again.
function band(part, { index, from, middle, wide, slot, lines, open, top, floor }) {
  const left = middle - wide / 2, bend = 70, high = top + bend, low = floor - bend;
  const down = (x0, x1, y0, y1) => `C${x0} ${(y0 + y1) / 2} ${x1} ${(y0 + y1) / 2} ${x1} ${y1}`;
  const outline = `M${from} ${top}${down(from, left, top, high)}V${low}${down(left, from, low, floor)}H${from + wide}` +
    `${down(from + wide, left + wide, floor, low)}V${high}${down(left + wide, from + wide, high, top)}Z`;
  const against = part.along < 0;
  const words = `${part.name}: norm ${shown(part.norm)}, ${shown(part.along)} along the whole`;
  const toggle = () => update({ open: open ? start.open : index });
  const first = (high + low - flow.step * (lines.length - 1)) / 2;
  return draw("g", { class: `band c${index % 6}${against ? " against" : ""}`, tabindex: 0, role: "button",
    "aria-expanded": open, "aria-label": `${words}${open ? `; steps: ${part.steps.join(", ")}` : ""}`,
    "data-focus": `path ${index}`, onclick: toggle, onkeydown: on_button_keys(toggle) },
  draw("title", {}, [words, ...(open ? part.steps : [])].join("\n")), draw("path", { d: outline }),
  lines.map(({ text, strong }, line) => plate(text, middle, first + flow.step * line, slot - 8, strong)));
}

// Text on its own ground, readable on any band.
function plate(text, x, y, room, strong) {
  const width = Math.min(room, 7.4 * [...text].length + 10);
  return draw("g", {}, draw("rect", { class: "plate", x: x - width / 2, y: y - 9, width, height: 18, rx: 3 }),
    svg_text(strong ? "title middle" : "middle", x, y + 4, text));
}

// ---- Table and map
function paths_table({ parts, norm }) {
  const headings = ["path", "chain: steps from the loss down", "norm", "along the whole", "share of the whole", "direction"];
  const reach = Math.max(norm, ...parts.map(({ along }) => Math.abs(along))) || 1;
  const line = (part) => [name_cell(part.name), make("td", {}, make("code", {}, part.steps.join(" \u2192 "))),
    number_cell(part.norm), number_cell(part.along),
    right_cell(norm > 0 ? `${(100 * part.along / norm).toFixed(1)} %` : "\u2013"),
    make("td", {}, signed_bar(part.along / reach))];
  return table_of(headings, [...parts, { name: "whole", steps: [], norm, along: norm }].map(line), { class: "paths" });
}

// A bar to the left is against the whole gradient.
export function signed_bar(share) {
  const size = 60 * Math.abs(share), label = share < 0 ? "against" : "along";
  return draw("svg", { viewBox: "0 0 124 14", class: "signed", role: "img", "aria-label": label },
    draw("rect", { class: share < 0 ? "minus" : "plus", x: share < 0 ? 62 - size : 62, y: 2, width: size, height: 10 }),
    svg_line("axis", [62, 0], [62, 14]));
}

// Rows are paths, columns are tokens, of one run or of the difference of two.
function paths_sheet(field) {
  const of_run = (run) => {
    const found = paths_to(run);
    return found && counted(tokens.length).map((i) => split(found, { ...state, i }).parts.map((part) => part[field]));
  };
  const one = of_run(run_shown()), other = state.run === "difference" ? of_run(run_named("beside")) : null;
  const found = paths_to(run_shown()), names = found.paths.map((path) => words_of(path, found.paths));
  const what = field === "norm" ? "norm of each path" : "each path along the whole";
  const title = other ? `${what}: ${difference_words(state)}` : what;
  return sheet_made(names.length, tokens.length, (path, i) => one[i][path] - (other?.[i]?.[path] ?? 0), {
    row_axis: "w", column_axis: "t", row_labels: names, title, name: field,
    note: `of dLoss/d${state.of}, ${paths_place()}`,
    scale: field === "norm" && !other ? "sequential" : "diverging" });
}

const paths_place = () => place_words(paths_to(run_shown()));

function draw_paths() {
  const found = paths_to(run_shown());
  const of_runs = state.run === "difference" ? [data, run_named("beside")] : [run_shown()];
  const lacking = of_runs.find((run) => !paths_to(run));
  if (lacking) return stage.append(note(`No paths recorded for layer ${state.layer}, ${lacking.label}.`));
  const title = make("h3"), bands = make("div", { class: "bands scroll" }), table = make("div");
  const sum = make("b", {}, `The paths add up to autograd\u2019s gradient to ${format(found.difference, 2)}.`);
  const widths = "Widths are norms. Paths may point apart, so norms need not add up; shares along the whole do. ";
  stage.append(title, bands, make("p", {}, widths, sum), table);
  of_selection(() => {
    const parts = split(found, state);
    title.replaceChildren(`How the gradient came to ${found.of} of token `, token_name(state.i), `, ${paths_place()}`);
    draw_bands(bands, parts, found);
    table.replaceChildren(paths_table(parts));
  });
  const room = stage.clientWidth - 130, cell = clamped(Math.floor(room / tokens.length), 3, 26);
  stage.append(make("h3", {}, "All tokens"), ...["norm", "along"].map((field) => map_figure(paths_sheet(field), cell)));
}

export const paths_view = {
  key: "paths", title: "Paths", group: "Why", wants: () => data.paths.length > 0,
  hint: "Each band is a path by which the gradient came from the loss. Look for a band that points against the whole.",
  controls: () => ["layer", "head", "of"], without: ["beside"],
  readout(at) {
    const found = paths_to(run_shown());
    if (!found) return [paths_place()];
    return [paths_place(), ", token ", token_name(at.i), ":",
      ...split(found, at).parts.flatMap(({ name, norm }) => reading(name, shown(norm)))];
  },
  draw: draw_paths,
};
