// View: the text itself, each token shaded by what the selected one counts, attends to, or hands a gradient.
import { clamped, counted, heading, make, norm_of, table_of } from "./elements.js";
import { pointer, state } from "./state.js";
import { data, hidden_at, measured, range_of, sheet_of, tokens, two_sided, value_at, visible } from "./data.js";
import { stop_of } from "./colour.js";
import {
  choose, current_quantity, number_cell, of_selection, place_words, set_hover, shown, stage, token_name
} from "./frame.js";
import { reach_of, row_of } from "./curves.js";

const readable = () => measured.filter((quantity) => /\b[ij] j$|^(b )?(h )?t [dc]$/.test(quantity.axes));
const reading_kind = () => state.part === "gradient" ? "gradient" : "value";

// One number per token, null where it is masked: the selected token's row or column of a map of pairs, or the size of
// each token's own vector.
function shading(at) {
  const sheet = sheet_of(state.quantity, reading_kind(), at, state.run);
  if (!sheet) return null;
  if (sheet.row_axis === "t") {
    return { sheet, values: counted(sheet.rows).map((t) => norm_of(row_of(sheet, t))), scale: "sequential" };
  }
  const as_query = state.side === "query", seen = (index) => as_query ? [at.i, index] : [index, at.i];
  const value_of = (place) => hidden_at(sheet, ...place) ? null : value_at(sheet, ...place) ?? null;
  const values = tokens.map((_, index) => value_of(seen(index)));
  return { sheet, values, scale: sheet.scale };
}

// The colours' ends: those of the map, so that rows can be compared, or of what is shown.
function shading_range({ sheet, values, scale }) {
  const own = reach_of(values);
  if (sheet.row_axis === "t") return own;
  if (!state.fit) return range_of(sheet, false);
  return two_sided(scale) ? [-Math.max(...own.map(Math.abs)), Math.max(...own.map(Math.abs))] : own;
}

// The colour, and a line as long as the number is large: at the foot where it is positive, at the head where not.
function shade(element, value, scale, range) {
  const hidden = value === null, { rgb, ink } = stop_of(scale, value, range);
  const size = 100 * Math.min(1, Math.abs(value) / (Math.max(...range.map(Math.abs)) || 1));
  element.classList.toggle("masked", hidden);
  const line = `linear-gradient(${ink} 0 0) left ${value < 0 ? "top" : "bottom"} / ${size}% 3px no-repeat`;
  element.style.cssText = hidden ? "" : `background: ${line} rgb(${rgb}); color: ${ink}`;
}

function draw_reading() {
  const title = make("h3");
  const text = make("div", { class: `text${state.mono ? " mono" : ""}`, role: "listbox", tabindex: 0,
    "data-focus": "text", "aria-label": "the text; arrow keys move the selected token" });
  const words = data.tokens.map((token, index) => make("span", { class: "word", role: "option", id: `word-${index}`,
    "data-index": index }, make("bdi", {}, tokens[index])));
  text.append(...words.flatMap((word, index) => [word, ...line_breaks(data.tokens[index])]));
  const key = "The line in a token is as long as its number is large: at the foot if positive, at the head if not. " +
    "\u21b5 is the end of a line, \u2423 a space. Hatched tokens are masked.";
  stage.append(title, text, make("p", { class: "note" }, key));
  const index_of = (event) => Number(event.target.closest(".word")?.dataset.index ?? NaN);
  text.addEventListener("pointermove", (event) => set_hover(index_of(event) >= 0 ? { j: index_of(event) } : null));
  text.addEventListener("pointerleave", () => set_hover(null));
  text.addEventListener("click", (event) => index_of(event) >= 0 && choose({ i: index_of(event) }));
  text.addEventListener("keydown", (event) => press_word(event, words));
  of_selection(() => shade_words(title, text, words));
  const list = make("div");
  stage.append(make("details", { class: "behind" }, make("summary", {}, "as a table"), list));
  of_selection(() => list.replaceChildren(...reading_table()));
}

// The end of a line ends it here too, so that paragraphs look as they are.
const line_breaks = (token) => [...token].filter((letter) => letter === "\n").map(() => make("br"));

function shade_words(title, text, words) {
  const shaded = shading(state);
  title.replaceChildren(...title_of(shaded));
  text.setAttribute("aria-activedescendant", `word-${state.i}`);
  words.forEach((word, index) => {
    word.setAttribute("aria-selected", String(index === state.i));
    if (!shaded) return;
    const value = shaded.values[index];
    shade(word, value, shaded.scale, shading_range(shaded));
    word.title = `${index}: ${value ?? "masked"}`;
  });
  return (at) => words.forEach((word, index) => word.classList.toggle("pointed", pointer.hover !== null && index === at.j));
}

function title_of(shaded) {
  if (!shaded) return [`${state.quantity}: not recorded for ${place_words()}`];
  if (shaded.sheet.row_axis === "t") return [`Size of ${shaded.sheet.title} of each token, ${place_words()}`];
  const side = state.side === "query" ? "row of the query " : "column of the key ";
  return [`${shaded.sheet.title}, ${place_words()}: ${side}`, token_name(state.i)];
}

// Up and down go to the nearest token of the next line that has one above or below.
function press_word(event, words) {
  const last = words.length - 1, near = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  const beside = { ArrowLeft: state.i - 1, ArrowRight: state.i + 1, Home: 0, End: last };
  const to = near ? word_beyond(words, near) : beside[event.key];
  if (to === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  choose({ i: clamped(to, 0, last) });
  words[state.i].scrollIntoView({ block: "nearest" });
}

function word_beyond(words, step) {
  const { offsetTop: top, offsetLeft: left } = words[state.i];
  let best = state.i, line = null;
  for (let index = state.i + step; words[index]; index += step) {
    const word = words[index];
    if (word.offsetTop === top) continue;
    line ??= word.offsetTop;
    if (word.offsetTop !== line) break;
    if (best === state.i || Math.abs(word.offsetLeft - left) < Math.abs(words[best].offsetLeft - left)) best = index;
  }
  return best;
}

function reading_table() {
  const shaded = shading(state);
  if (!shaded) return [];
  return [table_of([heading("token", true), heading("text"), heading("wanted here"), heading(shaded.sheet.title, true)],
    shaded.values.map((value, index) => make("tr", {}, make("td", { class: "n" }, index),
      make("td", {}, make("bdi", { class: "token" }, tokens[index])), make("td", {}, wanted(index)),
      value === null ? make("td", { class: "n" }, "masked") : number_cell(value))))];
}

const wanted = (index) =>
  data.targets[index] == null ? "" : make("bdi", { class: "token" }, visible(data.targets[index]));

export const reading_view = {
  wants: () => !data.overview && readable().length > 0,
  key: "reading", title: "Reading",
  hint: "Look for the tokens that the selected one counts or attends to: would a reader have needed them?",
  quantities: readable,
  controls: () => ["layer", "head", "quantity", "c", "part", "fit", "mono",
    ...(/t [dc]$/.test(current_quantity()?.axes) ? [] : ["side"])],
  readout(at) {
    const shaded = shading(at), index = pointer.hover ? at.j : at.i;
    if (!shaded) return [place_words()];
    const value = shaded.values[index];
    return [`${shaded.sheet.title}, ${place_words()}, of token `, token_name(at.i), ", at ", token_name(index), ": ",
      make("b", {}, value === null ? "masked" : shown(value)),
      ...(data.targets[index] == null ? [] : ["; wanted there: ", wanted(index)])];
  },
  draw: draw_reading,
};
