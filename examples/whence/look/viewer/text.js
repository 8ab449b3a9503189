// View: the text, each token shaded by what the selected token counts, attends to, or gives a gradient.
import {
  clamped, counted, folded, make, norm_of, note, on_keys, right_cell, table_of, token_text
} from "./elements.js";
import { followers, pointer, state } from "./state.js";
import { data, measured, range_of, sheet_of, telling, tokens, two_sided, value_at, visible } from "./data.js";
import { stop_of } from "./colour.js";
import {
  choose, current_quantity, follow_pointer, number_cell, of_selection, place_words, shown, stage, token_name
} from "./frame.js";
import { reach_of, row_of } from "./curves.js";
import { is_right, percent, predictions, words_at } from "./answers.js";

const readable = () => measured.filter((quantity) => /\b[ij] j$|^(b )?(h )?t [dc]$/.test(quantity.axes));
const reading_kind = () => state.part === "gradient" ? "gradient" : "value";

// Returns one number per token, null if masked: the selected token's row or column of a map of pairs, or the norm of
// each token's vector.
function shading(at) {
  const sheet = sheet_of(state.quantity, reading_kind(), at, state.run);
  if (!sheet) return null;
  if (sheet.row_axis === "t") {
    return { sheet, values: counted(sheet.rows).map((t) => norm_of(row_of(sheet, t))), scale: "sequential" };
  }
  const seen = (index) => state.side === "query" ? [at.i, index] : [index, at.i];
  return { sheet, values: tokens.map((_, index) => value_at(sheet, ...seen(index)) ?? null), scale: sheet.scale };
}

// Returns the colours' ends: the map's, for comparing rows, or those of the shown numbers.
function shading_range({ sheet, values, scale }) {
  const own = reach_of(values);
  if (sheet.row_axis === "t") return own;
  if (!state.fit) return range_of(sheet, false);
  return two_sided(scale) ? [-Math.max(...own.map(Math.abs)), Math.max(...own.map(Math.abs))] : own;
}

// Sets the colour, and a line as long as the number is large: at the foot if positive, else at the head.
function shade(element, value, scale, range) {
  const hidden = value === null, { rgb, ink } = stop_of(scale, value, range);
  const size = 100 * Math.min(1, Math.abs(value) / (Math.max(...range.map(Math.abs)) || 1));
  element.classList.toggle("masked", hidden);
  const line = `linear-gradient(${ink} 0 0) left ${value < 0 ? "top" : "bottom"} / ${size}% 3px no-repeat`;
  element.style.cssText = hidden ? "" : `background: ${line} rgb(${rgb}); color: ${ink}`;
}

function draw_text() {
  const title = make("h2"), list = make("div"), answer = make("p", { class: "answer", role: "status" }), all = predictions();
  const asked = (index) => !all[index] ? "" : is_right(all[index]) ? " asked" : " asked missed";
  const words = tokens.map((token, index) => make("span", { class: `word${asked(index)}`, role: "option", id: `word-${index}`,
    "data-index": index }, make("bdi", {}, token)));
  const text = make("div", { class: "text", role: "listbox", tabindex: 0,
    "data-focus": "text", "aria-label": "the text; arrow keys move the selected token",
    onkeydown: on_keys((key) => word_beside(words, key), (index) => {
      choose({ i: clamped(index, 0, words.length - 1) });
      words[state.i].scrollIntoView({ block: "nearest" });
    }) }, words.map((word, index) => [word, line_breaks(data.tokens[index])]));
  stage.append(title, text, answer, note("The line in a token is as long as its number is large, at the foot if positive, at " +
    "the head if not. Dots mark tokens with a question, a wave a wrong answer. \u21b5 is the end of a line, \u2423 a space. " +
    "Hatched tokens are masked."),
  folded("as a table", () => list));
  follow_pointer(text, ({ target }) => {
    const word = target.closest(".word");
    return word && { j: Number(word.dataset.index) };
  }, ({ j }) => choose({ i: j }));
  of_selection(() => shade_words(title, text, words));
  of_selection(() => list.replaceChildren(...reading_table()));
  followers.push(({ i }) => answer.replaceChildren(...all.some(Boolean) ? words_at(i) : []));
}

// A line break in a token is one here too, so that paragraphs keep their look.
const line_breaks = (token) => [...token].filter((letter) => letter === "\n").map(() => make("br"));

function shade_words(title, text, words) {
  const shaded = shading(state);
  title.replaceChildren(...title_of(shaded));
  text.setAttribute("aria-activedescendant", `word-${state.i}`);
  words.forEach((word, index) => {
    word.setAttribute("aria-selected", index === state.i);
    if (!shaded) return;
    const value = shaded.values[index];
    shade(word, value, shaded.scale, shading_range(shaded));
    word.title = `${index}: ${value ?? "masked"}`;
  });
  return (at) =>
    words.forEach((word, index) => word.classList.toggle("pointed", pointer.hover !== null && index === at.j));
}

function title_of(shaded) {
  if (!shaded) return [`${state.quantity}: not recorded for ${place_words()}`];
  if (shaded.sheet.row_axis === "t") return [`Size of ${shaded.sheet.title} of each token, ${place_words()}`];
  const side = state.side === "query" ? "row of the query " : "column of the key ";
  return [`${shaded.sheet.title}, ${place_words()}: ${side}`, token_name(state.i)];
}

const word_beside = (words, key) => ({ ArrowLeft: state.i - 1, ArrowUp: state.i - 1, ArrowRight: state.i + 1, ArrowDown: state.i + 1,
  Home: 0, End: words.length - 1 })[key];

function reading_table() {
  const shaded = shading(state);
  if (!shaded) return [];
  const all = predictions(), share = (index) => all[index] ? percent(all[index].wanted[1]) : "";
  const lines = shaded.values.map((value, index) => [right_cell(index),
    ...[token_text(tokens[index]), wanted(index)].map((text) => make("td", {}, text)), right_cell(share(index)), number_cell(value)]);
  return [table_of(["token", "text", "wanted here", "with", shaded.sheet.title], lines)];
}

const wanted = (index) => data.targets[index] == null ? "" : token_text(visible(data.targets[index]));

export const text_view = {
  key: "text", title: "Text", group: "Explore", wants: () => readable().length > 0,
  hint: "Look for the tokens that the selected one counts or attends to: would a reader have needed them?",
  quantities: readable, opens_on: () => telling(readable().filter(({ scale }) => scale === "unit")),
  controls: () => ["layer", "head", "quantity", "c", "part", "fit",
    ...(/t [dc]$/.test(current_quantity()?.axes) ? [] : ["side"])],
  readout(at) {
    const shaded = shading(at), index = pointer.hover ? at.j : at.i;
    if (!shaded) return [place_words()];
    const value = shaded.values[index];
    return [`${shaded.sheet.title}, ${place_words()}, of token `, token_name(at.i), ", at ", token_name(index), ": ",
      make("b", {}, shown(value)),
      ...(data.targets[index] == null ? [] : ["; wanted there: ", wanted(index)])];
  },
  draw: draw_text,
};
