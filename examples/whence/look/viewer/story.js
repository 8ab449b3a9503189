// View: one token's story in steps, each with a sentence, a picture and something to try. Steps show the quantities that a
// scheme registers, in its order. If these are gates and positions, as in CoPE, the loupe shows them.
import {
  acting_row, button, clamped, counted, draw, dress, folded, format, make, name_cell, note, right_cell, table_of, unique
} from "./elements.js";
import { state } from "./state.js";
import {
  besides, data, hidden_at, measured, part_of, run_named, run_shown, sheet_of, tokens, value_at
} from "./data.js";
import { equation } from "./equation.js";
import { cause_bar, one_share } from "./colour.js";
import { of_selection, place_words, shown, single_run, stage, steepest, token_name, update } from "./frame.js";
import { place_of } from "./map.js";
import { row_strips } from "./curves.js";
import { answer_name, asked, asked_after, is_right, percent, predictions } from "./answers.js";
import { paths_to, signed_bar, split } from "./paths.js";
import { has_engine } from "./engine.js";
import { draw_loupe, loupe_view } from "./loupe.js";
import { at_knob, draw_knob, knob, to_knob } from "./knob.js";

// ---- Quantities of the story
const of_pairs = ({ axes }) => /\bi j$/.test(axes);
const here = (quantity) => part_of(quantity, state.layer);
const of_scheme = () => measured.filter((each) => each.scheme && of_pairs(each) && here(each));
const attention = (name) => measured.find((each) => each.name === name && here(each));
// Prefers a quantity from 0 to 1, such as gates: it shows at a glance which tokens count.
const first_of_scheme = () =>
  of_scheme().find(({ scale }) => scale === "unit") ?? of_scheme()[0] ?? attention("scores");
const last_of_scheme = () => of_scheme().at(-1);
const value_sheet = (quantity) => quantity && sheet_of(quantity.name, "value", state, single_run());

const about = ({ name, caption, equation: text }) => {
  const words = caption ? `: ${caption}` : "";
  return [make("b", {}, name), text ? [": ", equation(text)] : "", words, /[.?]$/.test(words) ? "" : "."];
};
const key_words = (keys) => keys.flatMap((j, k) => [k ? ", " : "", token_name(j)]);
const largest_of = (sheet) => counted(sheet.columns).filter((j) => !hidden_at(sheet, state.i, j))
  .sort((one, other) => Math.abs(value_at(sheet, state.i, other)) - Math.abs(value_at(sheet, state.i, one)));
const largest_keys = (sheet, count) => largest_of(sheet).slice(0, count);

// ---- Steps: a title and a picture, drawn again at every selection. `tries` suggests an action, `to` is the view for it.
function row_picture(sheets) {
  const strips = make("div", { class: "strips" }), shown_sheets = sheets.filter(Boolean);
  if (!shown_sheets.length) return [strips, null];
  return [strips, row_strips(strips, shown_sheets, clamped(state.i, 0, shown_sheets[0].rows - 1), picture_width())];
}
const picture_width = () => stage.clientWidth > 1000 ? stage.clientWidth - 460 : stage.clientWidth - 8;

const question = {
  title: () => "What is asked",
  tells() {
    const t = asked_after(state.i), all = asked();
    return [`${data.asks} The model reads ${tokens.length} tokens and must answer after ${all.length} of them. Above, a column ` +
      "for each answer shows the probability of the right one; a red ground marks a wrong answer. After ", token_name(t),
    " the right answer is ", answer_name(predictions()[t].wanted[0]), "."];
  },
  tries: "Read the text on its left: what would you answer?",
  to: ["Text", () => ({ view: "text" })],
  picture() {
    const all = predictions(), t = asked_after(state.i);
    const from = clamped(t - 90, 0, t), to = Math.min(tokens.length, t + 40);
    const look = (index) => index === t ? "word chosen" : all[index] ? "word open" : "word";
    const word = (index) => make("span", { title: index, class: look(index) }, make("bdi", {}, tokens[index]));
    return [make("div", { class: "text" }, from ? "\u2026 " : "", counted(to - from).map((k) => word(from + k)))];
  },
};

const answer = {
  title: () => "What the model answers",
  tells() {
    const t = asked_after(state.i), { wanted, likeliest, loss } = predictions()[t];
    return ["After ", token_name(t), " the likeliest answer is ", answer_name(likeliest[0][0]), ` with ${percent(likeliest[0][1])}: `,
      is_right(predictions()[t]) ? "right. " : ["wrong; ", answer_name(wanted[0]), ` has ${percent(wanted[1])}. `],
      `The loss here is \u2212ln ${format(wanted[1], 6)} = ${format(loss, 3)}. Every gradient on this page is of the ` +
        `mean of the ${asked().length} losses. The page shows ${run_shown().label}.`];
  },
  tries: "Go to the token where the model is least sure. Which token should it have attended to?",
  to: ["the largest loss", () => {
    const all = predictions();
    return { i: asked().reduce((worst, t) => all[t].loss > all[worst].loss ? t : worst) };
  }],
  picture() {
    const t = asked_after(state.i), names = predictions()[t].likeliest.map(([text]) => text);
    const others = besides.map((each, k) => [k, each.label]);
    const runs = others.length > 1 ? others : [["this", data.label], ...others];  // the last checkpoint is this one
    const of_run = (run) => run === "this" ? data.predictions[t] : run_named("beside", { beside: run }).predictions[t];
    const line = ([run, label]) => [name_cell(label), ...names.map((name) => {
      const { likeliest, wanted } = of_run(run) ?? { likeliest: [], wanted: [] };
      const found = [wanted, ...likeliest].find(([text]) => text === name);
      return right_cell(found ? percent(found[1]) : likeliest.length
        ? `at most ${percent(likeliest.at(-1)[1])}` : "");
    })];
    const table = table_of(["", ...names.map(answer_name)], runs.map(line), { class: "answers" });
    return [make("div", {}, table, table.textContent.includes("at most")
      ? note("at most: the page keeps the likeliest answers of each step, and this one is not among them.") : null)];
  },
};

// ---- Which heads matter: the change of the loss when a head is shut
const effect_of = () => data.effects.find(({ layer, head }) => layer === state.layer && head === state.head);
const by_size = () => [...data.effects].sort((one, other) => Math.abs(other.real) - Math.abs(one.real));
const signed = (value) => `${value > 0 ? "+" : ""}${format(value, 3)}`;
const head_name = ({ layer, head }) => `layer ${layer}, head ${head}`;
// The story of another head keeps the query, and moves to the key with the most attention.
function head_chosen({ layer, head }) {
  const pattern = sheet_of("pattern", "value", { ...state, layer, head }, single_run());
  const others = pattern ? largest_of(pattern).filter((j) => j !== state.i) : [];
  return { layer, head, j: others[0] ?? state.j };
}

const heads_shown = 16;
function effect_lines(effects) {
  const most = Math.max(...data.effects.map(({ real }) => Math.abs(real))) || 1, width = 240;
  const bar = (real) => draw("svg", { class: "effect", width, height: 14, "aria-hidden": "true" }, draw("rect",
    { class: real < 0 ? "minus" : "plus", x: 0, y: 2, height: 10, width: Math.max(1, width * Math.abs(real) / most) }));
  return effects.map((each) => acting_row(`effect ${each.layer} ${each.head}`, () => update(head_chosen(each)),
    [name_cell(head_name(each)), make("td", {}, bar(each.real)), right_cell(signed(each.real))],
    { "aria-current": each.layer === state.layer && each.head === state.head, title: each.edit }));
}

const matters = {
  wants: () => data.effects?.length,
  title: () => "Which heads matter",
  tells() {
    const [first, ...rest] = by_size(), quantity = first.edit.split(" ")[0], loss = Number(data.facts.find(([name]) => name === "loss")[1]);
    const idle = rest.filter(({ real }) => Math.abs(real) < 0.01 * Math.abs(first.real)).length, here = effect_of();
    const shut = quantity.endsWith("gates") ? "all its gates at 0" : "its whole pattern at 0, so that it reads nothing";
    return [`The engine shut each head by itself, with ${shut}, and measured the loss. With ${head_name(first)} shut it goes from ` +
      `${format(loss, 3)} to ${format(loss + first.real, 3)}, the largest change of all`,
    rest.length ? `; ${idle} of the ${rest.length} others change it by less than a hundredth of that. ` : ". ",
    here && here !== first ? `The story shows ${head_name(here)}: ${signed(here.real)}.` : "The story continues with this head.",
    " It begins at the key, other than the query, with the most attention. The answer may come from another key."];
  },
  tries: "Choose a head that changes nothing: what does it do in the steps below?",
  to: ["the head that matters", () => head_chosen(by_size()[0])],
  picture() {
    const all = data.effects, first = all.length > heads_shown ? by_size().slice(0, heads_shown) : all;
    const table = (effects) => table_of(["head shut", "change of the loss", ""], effect_lines(effects), { class: "effects" });
    const rest = by_size().slice(heads_shown);
    return [make("div", {}, table(first), rest.length ? folded(`the ${rest.length} others`, () => table(rest)) : null)];
  },
};

const pairs = {
  wants: first_of_scheme,
  title: () =>
    first_of_scheme().name === "gates" ? "Which tokens this head counts" : "What this head makes of each token",
  tells() {
    const quantity = first_of_scheme(), sheet = value_sheet(quantity), head = place_words();
    const keys = sheet ? largest_keys(sheet, sheet.columns) : [], at = (j) => value_at(sheet, state.i, j);
    const counted_keys = keys.filter((j) => at(j) > 0.5), of = (all, text) => all.filter((j) => tokens[j] === text).length;
    const kinds = unique(counted_keys.map((j) => tokens[j])).sort((a, b) => of(counted_keys, b) - of(counted_keys, a)).slice(0, 4);
    return [about(quantity), " For the query ", token_name(state.i), `, ${head} `, quantity.scale === "unit"
      ? [`counts ${counted_keys.length} of the ${keys.length} tokens that it sees by more than a half`, kinds.map((text, k) =>
        [k ? ", " : ": ", answer_name(text), ` (${of(counted_keys, text)} of ${of(keys, text)})`]), ". Its numbers are "] : "has numbers that are ",
    "largest at ", ...key_words(keys.slice(0, 3)), " and smallest at ", ...key_words(keys.slice(-3)), "."];
  },
  tries: "Choose another head in the step before: does it count other tokens?",
  to: ["all heads", () => ({ view: "quantities", quantity: first_of_scheme().name, show: "one" })],
  picture: () => row_picture([value_sheet(first_of_scheme())]),
};

const position = {
  wants: last_of_scheme,
  title: () => loupe_view.wants() ? "The position that comes out, and what it adds" : "What it adds to the score",
  tells() {
    const sheet = value_sheet(last_of_scheme()), at = sheet && value_at(sheet, state.i, state.j);
    const p = value_sheet(attention("positions")), z = measured.find(({ name }) => name === "z");
    const where = p && value_at(p, state.i, state.j), low = Math.floor(where ?? 0), share = (where ?? 0) - low;
    const between = where != null && z ? [`From key to query the gates add up to position ${format(where, 3)}: ` +
      (share ? `between positions ${low} and ${low + 1} of z, of which it takes ${percent(1 - share)} and ` +
        `${percent(share)}. ` : `position ${low} of z. `), about(z), " "] : "";
    return [between, about(last_of_scheme()), " At key ", token_name(state.j), `, ${last_of_scheme().name} is ${shown(at)}.`];
  },
  tries: "Click another key in the picture: how far away is it, and what does that add?",
  to: ["Heads", () => ({ view: "heads", quantity: last_of_scheme().name })],
  picture: () => row_picture(unique([attention("positions"), last_of_scheme()]).map(value_sheet)),
};

const attends = {
  wants: () => attention("pattern") && !loupe_view.wants(),
  title: () => "What the head then reads",
  tells() {
    const sheet = value_sheet(attention("pattern"));
    return ["With this, the softmax gives each token a share of the attention of the query ", token_name(state.i),
      ". The largest shares are at ", ...key_words(sheet ? largest_keys(sheet, 3) : []), "."];
  },
  tries: "Compare with the step before: is it the position that decides, or the content?",
  to: ["Text", () => ({ view: "text", quantity: "pattern", part: "value" })],
  picture: () => row_picture([value_sheet(attention("logits")), value_sheet(attention("pattern"))]),
};

// ---- Gradients are shown at the step where the loss fell most, if the page has it: at the end they are almost 0.
const learning = () => state.run === "this" && state.gradients === "steepest" && steepest >= 0;
const gradient_of = (name, run = learning() ? besides[steepest] : single_run()) => sheet_of(name, "gradient", state, run);
const when_words = (run) => learning() ? [`This is at ${run.label}. `] : [];
const other_time = () => state.run !== "this" || steepest < 0 ? [] : [" ", button(
  `show ${learning() ? data.label : besides[steepest].label}`, "story time",
  () => update({ gradients: learning() ? "shown" : "steepest" }))];
const to_learning = (run = besides[steepest]) =>
  learning() && run === besides[steepest] ? { run: "beside", beside: steepest } : {};

const size_in_row = (sheet) => Math.max(0, ...largest_keys(sheet, 1).map((j) => Math.abs(value_at(sheet, state.i, j))));
const learns = {
  wants: () => gradient_of(last_of_scheme()?.name) && state.run !== "difference",
  title: () => "How it learns",
  tells() {
    const { name } = last_of_scheme(), sheet = gradient_of(name), end = gradient_of(name, "this"), top = largest_keys(sheet, 3);
    const plot = first_of_scheme() === last_of_scheme() ? "" : " in the lower plot";
    const more = learning() && end ? ` At the end of training the largest is ${format(size_in_row(end), 3)}: hardly anything is left to learn.` : "";
    return [when_words(besides[steepest]), `dLoss/d${name} says how the loss changes as this number grows; training moves it the other ` +
      `way. For the query `, token_name(state.i), `, the largest${plot} are at `, ...key_words(top), `, up to ${format(size_in_row(sheet), 3)}.`,
    more, other_time()];
  },
  tries: "Is the gradient large where the attention is, or where it should be?",
  to: ["Quantities", () => ({ view: "quantities", quantity: last_of_scheme().name, show: "one", part: "gradient", ...to_learning() })],
  picture: () => row_picture(unique([first_of_scheme(), last_of_scheme()]).map(({ name }) => gradient_of(name))),
};

const to_query = () => paths_to(run_shown(), "q");
const paths = {
  wants: () => to_query()?.paths.length,
  title: () => "Where its gradient comes from",
  tells() {
    const { parts } = split(to_query(), state);
    const first = [...parts].sort((a, b) => Math.abs(b.along) - Math.abs(a.along))[0];
    return ["dLoss/dq, the gradient of the loss with respect to the query vector of ", token_name(state.i), ", comes down by " +
      `${parts.length === 1 ? "one path," : `${parts.length} paths, most of it`} ${first.name}. A share is a path\u2019s part of the whole gradient. Together the shares ` +
      "are 100 %; a path that pulls against the others has a negative share."];
  },
  tries: "Choose another head above: does it learn by the same path?",
  to: ["Paths", () => ({ view: "paths", of: "q" })],
  picture() {
    const { parts, norm } = split(to_query(), state);
    const reach = Math.max(norm, ...parts.map(({ along }) => Math.abs(along))) || 1;
    return [table_of(["path", "share", ""], parts.map(({ name, along }) => [name_cell(name),
      right_cell(norm > 0 ? percent(along / norm) : "0 %"), make("td", {}, signed_bar(along / reach))]))];
  },
};

// Chooses a cause and a number that it makes zero, in this row if possible. Causes that come from the scheme go before "no
// target", the step that learns before the trained model, and then the most frequent cause of this head first.
const telling = ["table flat", "whole position", "clamped", "saturated"];
const rank_of = (kind) => telling.includes(kind) ? 0 : kind === "no target" ? 2 : 1;
function zero_here() {
  const runs = learning() ? [besides[steepest], data] : [run_shown()];
  const found = runs.flatMap((run) => of_scheme().flatMap((quantity) => run.shares.filter(({ probe, layer, head }) =>
    probe === quantity.probe && layer === state.layer && (head === null || head === state.head))
    .flatMap(({ by, entries }) => by.map((count, cause) => ({ run, quantity, cause, count, entries, ...run.causes[cause] })))));
  const best = found.filter(({ cause, count, kind }) => cause && count && kind !== "masked").sort((one, other) =>
    rank_of(one.kind) - rank_of(other.kind) || runs.indexOf(one.run) - runs.indexOf(other.run) || other.count - one.count)[0];
  const sheet = best && gradient_of(best.quantity.name, best.run);
  if (!sheet?.causes) return null;
  const in_row = sheet.causes.indexOf(best.cause, state.i * sheet.columns);
  const cell = in_row >= 0 && in_row < (state.i + 1) * sheet.columns ? in_row : sheet.causes.indexOf(best.cause);
  const column = cell % sheet.columns, place = place_of(sheet, { row: (cell - column) / sheet.columns, column });
  return { ...best, place };
}

const zero = {
  wants: zero_here,
  title: () => "Here it is zero, because",
  tells() {
    const { run, quantity, kind, text, change, count, entries, place, vanishing } = zero_here();
    return [when_words(run), `For example dLoss/d${quantity.name} at the query `, token_name(place.i), " and the key ",
      token_name(place.j), vanishing ? " is close to zero. " : " is zero. ", make("b", {}, kind),
      `: ${text}. This one cause has ${percent(count / entries)} of all pairs of this head, masked pairs included. The last column ` +
        "has the share of all pairs whose gradient is exactly 0, by any cause.",
      change ? ` What would change it: ${change}.` : ""];
  },
  tries: "Which of these causes can training take away, and which can it not?",
  to: ["Why zero?", () => ({ view: "why", quantity: zero_here().quantity.name, ...zero_here().place, ...to_learning(zero_here().run) })],
  picture() {
    const { run: { causes, shares }, quantity } = zero_here();
    const all = shares.filter(({ probe, layer }) => probe === quantity.probe && layer === state.layer);
    const present = counted(causes.length).filter((cause) => cause && all.some(({ by }) => by[cause]));
    const named = (cause) => [cause_bar(causes, one_share(cause), 16, 16), ` ${causes[cause].kind}  `];
    const bar = ({ by, entries }) => cause_bar(causes, by.map((count) => count / entries), 260, 16);
    const line = (share) => [name_cell(share.head ?? "all"), make("td", {}, bar(share)),
      right_cell(percent(share.zeros / share.entries))];
    return [make("div", {}, note(present.map(named)), table_of(["head", "causes", "exactly 0, by any cause"], all.map(line)))];
  },
};

// ---- The view
function draw_step({ title, tells, tries, to: [where, change], picture }, number) {
  const heading = make("h3"), words = make("p"), drawn = make("div", { class: "picture" });
  const way_on = button(`${where} \u203a`, `story ${number}`, () => update(change()));
  stage.append(make("section", { class: "step" },
    make("div", {}, heading, words, make("p", { class: "try" }, tries, " ", way_on)), drawn));
  of_selection(() => {
    heading.replaceChildren(`${number}. ${title()}`);
    words.replaceChildren(...tells().flat(3));
    const [element, follow] = picture();
    drawn.replaceChildren(element);
    return follow;
  });
}

// With the engine in the page the loupe moves any gate. Without it, a slider goes through the stops of the story's pair.
const move = {
  wants: () => (has_engine && loupe_view.wants()) || knob(),
  draw(number) {
    const heading = make("h3", {}, `${number}. Move it`);
    if (has_engine && loupe_view.wants()) {
      stage.append(heading, make("p", { class: "try" },
        "Drag the gate of this key down to 0: what happens to the position of every token on its left?"));
      return draw_loupe();
    }
    const words = make("div", {}, heading), pictures = make("div", { class: "picture" }), elsewhere = make("p", { class: "note" });
    stage.append(make("section", { class: "step" }, words, pictures));
    const { layer, head, i, j } = knob();
    dress(words, {}, make("p", {}, `When the page was written the engine computed the pass at eleven values of one number of layer ${layer}, ` +
      `head ${head}, for the query `, token_name(i), " and the key ", token_name(j), ". Orange dashes show the unchanged model."));
    const show = draw_knob({ words, pictures });
    dress(words, {}, elsewhere, make("p", { class: "try" }, "Move it to both ends: does the answer change, and does the gradient predict by how much?"));
    of_selection(() => {
      elsewhere.replaceChildren(...at_knob() ? [] : ["The steps around this one now show another pair. ",
        button("back to the pair that moves", "to knob", () => update(to_knob()))]);
      show();
    });
  },
};

export const story_view = {
  key: "story", title: "Story",
  wants: () => asked().length > 0,
  get bare() { return Boolean(data.effects); },  // the effects choose heads, and the pictures pairs
  hint: "From the question to its gradient, step by step. A click on a token, a head or a key takes every step there.",
  controls: () => ["layer", "head"],
  readout: (at) => [`${place_words()}, query `, token_name(at.i), ", key ", token_name(at.j)],
  draw() {
    [question, answer, matters, pairs, position, attends, move, learns, paths, zero].filter(({ wants }) => !wants || wants())
      .forEach((step, index) => step.draw ? step.draw(index + 1) : draw_step(step, index + 1));
  },
};
