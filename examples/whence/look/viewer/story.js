// View: the story of one answer. A row that the reader drags, then what is counted, how it learns, by which way its gradient
// comes, and why it dies. Steps show the quantities that a scheme registers, in its order.
import { bar_cell, button, clamped, counted, folded, format, make, name_cell, note, right_cell, sum_of, table_of, unique } from "./elements.js";
import { state } from "./state.js";
import { data, hidden_at, measured, part_of, sheet_of, tokens, value_at } from "./data.js";
import { equation } from "./equation.js";
import { cause_bar } from "./colour.js";
import { controls, has_moments, moment, of_selection, place_words, show_cursor, shown, single_run, stage, token_name, update } from "./frame.js";
import { on_map_keys, place_of } from "./map.js";
import { row_strips } from "./curves.js";
import { answer_name, asked, asked_after, is_right, percent, predictions } from "./answers.js";
import { paths_table, paths_to, split } from "./paths.js";
import { draw_turn, knob, moved_row, moving, signed, to_knob } from "./knob.js";
import { picture_steps } from "./picture.js";
import { has_engine } from "./engine.js";
import { legend } from "./why.js";
import { source } from "./source.js";

// ---- Quantities of the story
const of_pairs = ({ axes }) => /\bi j$/.test(axes);
const of_scheme = () => measured.filter((each) => each.scheme && of_pairs(each) && part_of(each, state.layer));
const attention = (name) => measured.find((each) => each.name === name && part_of(each, state.layer));
const last_of_scheme = () => of_scheme().at(-1);
const value_sheet = (quantity) => quantity && sheet_of(quantity.name, "value", state, single_run());
const gradient_sheet = (name) => sheet_of(name, "gradient", state, moment());

const about = ({ name, caption }) => [make("b", {}, name), caption ? `: ${caption}` : "", /[.?]$/.test(caption) ? " " : ". "];
const behind = (all) => all.filter((each) => each?.equation).map(({ name, equation: text }) =>
  folded(`the equation of ${name}`, () => make("p", {}, equation(text))));
const key_words = (keys) => keys.flatMap((j, k) => [k ? ", " : "", token_name(j)]);
const largest_keys = (sheet, count) => counted(sheet.columns).filter((j) => !hidden_at(sheet, state.i, j))
  .sort((one, other) => Math.abs(value_at(sheet, state.i, other)) - Math.abs(value_at(sheet, state.i, one))).slice(0, count);

function row_picture(sheets, moved) {
  const shown_sheets = sheets.filter(Boolean), [first] = shown_sheets;
  if (!first) return [make("div"), null];
  const strips = make("div", { class: "strips", tabindex: 0, role: "application", "data-focus": `row ${first.title}`,
    "aria-label": `${first.title}; arrow keys move the cursor`, onkeydown: on_map_keys(first) });
  const width = stage.clientWidth > 1000 ? stage.clientWidth - 460 : stage.clientWidth - 8;
  return [strips, row_strips(strips, shown_sheets, clamped(state.i, 0, first.rows - 1), width, moved)];
}

const at_knob = () => knob() && ["layer", "head", "i"].every((key) => state[key] === knob()[key]);
// ---- Steps: a title, words and a picture, drawn again at every selection
function silenced_words() {
  const own = data.effects?.find(({ layer, head }) => layer === state.layer && head === state.head);
  if (!own || state.run !== "this") return "";
  const misled = at_knob() && Math.max(...knob().stops.map(({ real }) => real)) > 10 * Math.abs(own.real);
  return [` Without this head, its output set to 0, the loss changes by ${signed(own.real)}. `,
    misled ? "Moving the number above can change the loss more than removing the whole head." : ""];
}

const counts = {
  wants: moving,
  title: () => moving().name === "gates" ? "Which tokens this head counts" : "What this head makes of each token",
  tells() {
    const quantity = moving(), sheet = value_sheet(quantity), last = value_sheet(last_of_scheme());
    const seen = sheet ? largest_keys(sheet, sheet.columns) : [], at = (j) => value_at(sheet, state.i, j);
    const between = attention("positions"), open = seen.filter((j) => at(j) > 0.5), of = (all, text) => all.filter((j) => tokens[j] === text).length;
    const kinds = unique(open.map((j) => tokens[j])).sort((a, b) => of(open, b) - of(open, a)).slice(0, 4);
    return [about(quantity), "For the query ", token_name(state.i), `, ${place_words()} `, quantity.scale === "unit"
      ? [`counts ${open.length} of ${seen.length} tokens`, kinds.map((text, k) =>
        [k ? ", " : ": ", answer_name(text), ` (${of(open, text)} of ${of(seen, text)})`]), "."]
      : ["has the largest numbers at ", ...key_words(seen.slice(0, 3)), "."],
    between && between !== quantity ? [" ", about(between)] : "",
    last && last_of_scheme() !== quantity ? [" At the key ", token_name(state.j), ` this adds ${last_of_scheme().name} `,
      shown(value_at(last, state.i, state.j)), " to the score."] : "", silenced_words()];
  },
  more: () => unique([moving(), last_of_scheme()]),
  picture() {
    const rows = unique([attention("positions"), last_of_scheme() ?? moving(), attention("pattern")]);
    return row_picture(rows.map(value_sheet), moved_row);
  },
};

// Gradients are shown at one step of training: where the loss fell most, unless the reader chooses another. They are of the
// quantity that moves above, or of the scheme's last if no gradient reaches that.
const learnt = () => [moving(), last_of_scheme()].find((each) => each && gradient_sheet(each.name));
const learns = {
  wants: () => learnt() && state.run !== "difference",
  title: () => "How it learns",
  tells() {
    const { name } = learnt(), sheet = gradient_sheet(name), end = sheet_of(name, "gradient", state, "this");
    const most = (each) => Math.max(0, ...largest_keys(each, 1).map((j) => Math.abs(value_at(each, state.i, j))));
    return [`dLoss/d${name} says how the loss changes as a number of ${name === moving().name ? "the row above" : name} grows; training `,
      `moves it the other way. For this query the largest are at `,
      ...key_words(largest_keys(sheet, 3)), `, up to ${format(most(sheet), 3)}. `,
      moment() === data || !end ? "" : `At the end of training the largest is ${format(most(end), 3)}: hardly anything is left to learn.`];
  },
  picture: () => row_picture([gradient_sheet(learnt().name)]),
};

const to_query = () => paths_to(moment(), "q") ?? paths_to(data, "q");
const ways = {
  wants: () => to_query()?.paths.length,
  title: () => "Where its gradient comes from",
  tells() {
    const { parts } = split(to_query(), state), [first] = [...parts].sort((a, b) => Math.abs(b.along) - Math.abs(a.along));
    return ["dLoss/dq, the gradient of the query vector of ", token_name(state.i),
      parts.length === 1 ? `, comes down by one path, ${first.name}. ` : `, comes down by ${parts.length} paths, most of it ${first.name}. `,
      "Shares add up to 100 %; a path that pulls against the others has a negative share."];
  },
  picture() {
    return [paths_table(split(to_query(), state), false)];
  },
};

// Chooses the most frequent cause of this head, and a number that it makes zero, in this row if possible. Causes that come
// from the scheme go first if they have a hundredth of the pairs that the mask lets through.
const telling_causes = ["table flat", "whole position", "clamped", "saturated"];
const is_telling = ({ kind, count, pairs }) => telling_causes.includes(kind) && count > 0.01 * pairs;
function zero_here() {
  const run = moment(), own = ({ layer, head }) => layer === state.layer && (head === null || head === state.head);
  const found = unique([moving(), ...of_scheme()]).flatMap((quantity) =>
    run.shares.filter((each) => each.probe === quantity.probe && own(each)).flatMap(({ by, entries }) => {
      const pairs = entries - sum_of(by.filter((_, cause) => run.causes[cause].kind === "masked"));
      return by.map((count, cause) => ({ quantity, cause, count, by, entries, pairs, ...run.causes[cause] }));
    }));
  const [best] = found.filter(({ cause, count, kind }) => cause && count && kind !== "masked")
    .sort((one, other) => is_telling(other) - is_telling(one) || other.count - one.count);
  const sheet = best && gradient_sheet(best.quantity.name);
  if (!sheet?.causes) return null;
  const in_row = sheet.causes.indexOf(best.cause, state.i * sheet.columns);
  const cell = in_row >= 0 && in_row < (state.i + 1) * sheet.columns ? in_row : sheet.causes.indexOf(best.cause);
  return { ...best, place: place_of(sheet, { row: Math.floor(cell / sheet.columns), column: cell % sheet.columns }) };
}
const zero = {
  wants: zero_here,
  title: () => "Why a gradient dies",
  tells() {
    const { quantity, kind, text, change, count, pairs, place, vanishing } = zero_here();
    return [`dLoss/d${quantity.name} at the query `, token_name(place.i), " and the key ", token_name(place.j),
      vanishing ? " is close to zero. " : " is zero. ", make("b", {}, kind),
      `: ${text}. This cause has ${percent(count / pairs)} of the pairs of this head that the mask lets through.`,
      change ? ` What would change it: ${change}.` : ""];
  },
  picture() {
    const { by, entries } = zero_here(), { causes } = moment();
    return [make("div", {}, cause_bar(causes, by.map((count) => count / entries), 320, 18), legend(causes, by))];
  },
};

// ---- The view
export function draw_step({ title, tells, more = () => [], picture }, number) {
  const heading = make("h2"), words = make("p"), behind_words = make("div"), drawn = make("div", { class: "picture" });
  stage.append(make("section", { class: "step" }, make("div", {}, heading, words, behind_words), drawn));
  return of_selection(() => {
    heading.replaceChildren(`${number}. ${title()}`);
    words.replaceChildren(...tells().flat(4));
    behind_words.replaceChildren(...behind(more()));
    const [element, follow] = picture();
    drawn.replaceChildren(element);
    return follow;
  });
}

// Other answers of the sequence: each is a place for the steps below, and with an engine for the row.
function questions() {
  const most = 16, all = asked(), link = (t) => button(token_name(t), `asked ${t}`, () => update({ i: t, j: Math.min(state.j, t) }),
    { "aria-pressed": String(t === state.i), class: is_right(predictions()[t]) ? "go" : "go wrong" });
  return make("nav", { class: "questions", "aria-label": "answers of this sequence" }, "asked after ", all.slice(0, most).map(link),
    all.length > most ? ` and ${all.length - most} more` : "");
}

// ---- This run and others: their errors, and their answers to the question of the story
function rivals() {
  const t = asked_after(knob()?.i ?? state.i), all = data.rivals, sets = unique(all.flatMap(({ results }) => results.map(({ set }) => set)));
  const most = Math.max(1, ...all.flatMap(({ results }) => results.map(({ percent: each }) => each)));
  const error = ({ results }, set) => {
    const found = results.find((each) => each.set === set);
    return found ? [bar_cell(found.percent / most, 0), right_cell(`${found.percent.toFixed(2)} %`)] : [make("td"), right_cell("\u2013")];
  };
  const answer = ({ predictions: of }) => {
    const { likeliest: [[said, share]] } = of[t], right = is_right(of[t]);
    return make("td", { class: right ? null : "wrong" }, answer_name(said), ` (${percent(share)}), ${right ? "right" : "wrong"}`);
  };
  return table_of(["positional encoding", ...sets.flatMap((set) => ["", `wrong, ${set}`]), ["answer after ", token_name(t)]],
    all.map((each) => [name_cell(each.scheme), ...sets.flatMap((set) => error(each, set)), answer(each)]), { class: "rivals" });
}

// Another text or sequence: the program makes its page.
function other_input() {
  const task = data.facts.some(([name]) => name === "sequence"), name = task ? "sample" : "prompt";
  if (!task && !data.facts.some(([fact]) => fact === "text")) return "";
  return make("form", { class: "controls", method: "get", action: "" }, make("label", {}, task ? "sequence number " : "your own text ",
    make("input", { name, type: task ? "number" : "text", min: 0, required: true, size: 40 })), make("button", {}, "show it"));
}

export const story_view = {
  key: "story", title: "Story", bare: true,
  wants: () => asked().length > 0,
  hint: "Which earlier tokens count? Drag a bar and watch the answer. The gradient foretells small steps; a large one may break " +
    "what it calls safe.",
  controls: () => ["moment"],
  readout: () => [],
  draw() {
    const turn = make("section", { class: "turn", "aria-label": "move a number" });
    stage.append(make("p", {}, data.asks), data.rivals?.length ? rivals() : "", source.is_served ? other_input() : "", turn);
    const after_move = [], pictures = picture_steps();
    const show = draw_turn(turn, () => after_move.forEach((redraw) => redraw())), elsewhere = make("p", { class: "note" });
    stage.append(elsewhere, questions());
    of_selection(() => {
      const away = knob() && !has_engine && !at_knob();
      const back = () => button("back to the row above", "to knob", () => update(to_knob()));
      elsewhere.replaceChildren(...away ? ["The steps below show another place. ", back()] : []);
      show();
    });
    let number = 0;
    for (const step of [counts, ...pictures, learns, ways, zero]) {
      if (!step.wants()) continue;
      if (step === learns && has_moments()) stage.append(make("p", { class: "moment" }, controls.moment.label));
      const redraw = draw_step(step, ++number);
      if (step === counts || pictures.includes(step)) after_move.push(() => (redraw(), show_cursor()));
    }
    stage.append(make("p", {}, button("Explore every number \u203a", "explore", () => update({ view: "quantities" }), { class: "go" })));
  },
};
