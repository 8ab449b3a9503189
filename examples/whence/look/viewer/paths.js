// View: the gradient of one vector, q, k, v or x of a token, split into the paths by which it came from the loss.
import { bar_cell, clamped, counted, format, make, name_cell, note, right_cell, table_of } from "./elements.js";
import { state } from "./state.js";
import {
  data, decode, difference_words, letters_of, measured, run_named, run_shown, sheet_made, slice_of, tokens
} from "./data.js";
import { add_controls, number_cell, of_selection, place_words, reading, shown, stage, token_name } from "./frame.js";
import { map_figure } from "./map.js";
import { percent } from "./answers.js";

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

// ---- Table and map
// A bar to the left is against the whole gradient. Without `whole`, shares alone.
export function paths_table({ parts, norm }, whole = true) {
  const all = whole ? [...parts, { name: "whole", steps: [], norm, along: norm }] : parts;
  const reach = Math.max(norm, ...parts.map(({ along }) => Math.abs(along))) || 1;
  const share = ({ along }) => [right_cell(norm > 0 ? percent(along / norm) : "\u2013"), bar_cell(along / reach)];
  const more = ({ norm: size, along, steps }) => [number_cell(size), number_cell(along),
    make("td", {}, make("code", {}, steps.join(" \u2192 ")))];
  const lines = all.map((part) => [name_cell(part.name), ...share(part), ...whole ? more(part) : []]);
  const heads = whole ? ["norm", "along the whole", "chain: steps from the loss down"] : [];
  return table_of(["path", "share", "", ...heads], lines, { class: whole ? "paths" : null });
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
  const title = make("h2"), table = make("div");
  const sum = make("b", {}, `The paths add up to autograd\u2019s gradient to ${format(found.difference, 2)}.`);
  const norms = "Paths may point apart, so norms need not add up; shares along the whole do. ";
  stage.append(title, make("p", {}, norms, sum), table);
  of_selection(() => {
    const parts = split(found, state);
    title.replaceChildren(`How the gradient came to ${found.of} of token `, token_name(state.i), `, ${paths_place()}`);
    table.replaceChildren(paths_table(parts));
  });
  const room = stage.clientWidth - 130, cell = clamped(Math.floor(room / tokens.length), 3, 26);
  stage.append(make("h2", {}, "All tokens"), ...["norm", "along"].map((field) => map_figure(paths_sheet(field), cell)));
}

export const paths_view = {
  key: "paths", title: "Paths", group: "Why", wants: () => data.paths.length > 0,
  hint: "Each line is a path by which the gradient came from the loss. Look for a bar to the left: it pulls against the whole.",
  controls: () => ["layer", "head", "of"], without: ["beside"],
  readout(at) {
    const found = paths_to(run_shown());
    if (!found) return [paths_place()];
    return [paths_place(), ", token ", token_name(at.i), ":",
      ...split(found, at).parts.flatMap(({ name, norm }) => reading(name, shown(norm)))];
  },
  draw: draw_paths,
};
