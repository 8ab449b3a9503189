// The selected pair: its tokens, its numbers in every model, why they are what they are, and the causes of zeros.
import { acting_row, counted, format, make, name_cell, right_cell, table_of, token_text } from "./elements.js";
import { ask_about, is_current, learners, selected_learner } from "./learners.js";
import { title_of } from "./maps.js";
import { kind_at, of_pairs, place_text, sheet_named, sheet_of, shown_quantities } from "./sheets.js";
import { choose, drawn, redraw, state } from "./state.js";

// ---- What is selected, or what can be: another quantity where this model has none of that name
export function selected() {
  const learner = selected_learner(), seen = learner?.look, sheet = sheet_named(seen, state.quantity);
  return sheet && { learner, look: seen, sheet, place: place_text(sheet) };
}

// A first pair: the last token that is asked for, and the one before it. What is out of reach comes to the edge.
export function settle() {
  const seen = selected_learner()?.look;
  if (!seen) return;
  const { targets, tokens } = seen.page, last = tokens.length - 1;
  if (state.i < 0) state.i = targets.findLastIndex((target) => target !== null);
  if (state.i < 0) state.i = last;
  if (state.j < 0) state.j = Math.max(0, state.i - 1);
  state.i = Math.min(state.i, last);
  state.j = Math.min(state.j, last);
  if (!sheet_named(seen, state.quantity)) state.quantity = "pattern";
}

const shown = (learner, sheet, field) => {
  const { row, column, cell } = sheet;
  if (row.at >= row.extent || column.at >= column.extent) return "no such pair";
  if (!sheet[field]) return "none";
  return kind_at(learner.look, sheet) === "masked" ? "masked" : format(sheet[field][cell]);
};

// ---- The tokens
function token_strip({ page: { tokens, targets } }) {
  return tokens.map((text, k) => make("span", { class: ["word", k === state.i && "query", k === state.j && "key",
    targets[k] !== null && "asked"].filter(Boolean).join(" ") }, token_text(text)));
}
const token = (seen, k) => [`${k} \u2018`, token_text(seen.page.tokens[k]), "\u2019"];

// ---- The numbers of all models there
function rows_of(learner) {
  return shown_quantities(learner.look).map((quantity) => {
    const sheet = sheet_of(learner.look, quantity), { index } = learner, { name } = quantity;
    const now = index === state.model && name === state.quantity;
    const kind = kind_at(learner.look, sheet);
    return acting_row(`row ${index} ${name}`, () => choose({ model: index, quantity: name }),
      [name_cell(make("span", { class: `dot c${index}` }, index + 1), ` ${name}`),
        right_cell(shown(learner, sheet, "value")), right_cell(shown(learner, sheet, "gradient")),
        make("td", {}, kind === "lives" ? "" : kind)], { "aria-current": now ? "true" : null });
  });
}

// ---- Why
const why = { key: "", texts: [] };
async function find_why() {
  const here = selected();
  if (!here || state.playing || !is_current(here.learner)) return;
  const key = `${here.look.key} ${here.place}`;
  if (why.key === key) return;
  why.key = key;
  await new Promise((resolve) => setTimeout(resolve, 200));  // a key held down passes many cells
  if (why.key !== key) return;
  const questions = [here.place, `dLoss/d${here.place}`].map((what) => ({ ask: "explain", what }));
  const texts = await ask_about(here.learner, questions)
    .then((answers) => answers.map(({ text }) => text), (problem) => [problem.message]);
  if (why.key !== key) return;
  why.texts = texts;
  redraw();
}

// ---- Why gradients are zero
function causes_of({ look: { page }, sheet }) {
  const { quantity: { probe, axes }, layer, index } = sheet, head = axes[0] === "h" ? index : null;
  const share = page.shares.find((each) => each.probe === probe && each.layer === layer && each.head === head)
    ?? page.shares.find((each) => each.probe === probe && each.layer === layer);
  if (!share) return ["No shares are known of this quantity."];
  const parts = share.by.map((count, k) => ({ ...page.causes[k], k, percent: 100 * count / share.entries }))
    .filter(({ percent }) => percent > 0);
  const look_of = ({ kind, k }) => kind === "masked" ? "hidden-pairs" : `s${k % 8}`;
  const words = (part) => make("li", {}, make("span", { class: `swatch ${look_of(part)}` }),
    make("b", {}, `${part.percent.toFixed(1)} % ${part.kind}`), `: ${part.text}`,
    part.change ? make("i", {}, ` (${part.change})`) : "");
  return [make("div", { class: "stack", "aria-hidden": "true" }, parts.map((part) =>
    make("span", { class: look_of(part), style: `width: ${part.percent}%` }))), make("ul", {}, parts.map(words))];
}

// ---- The panel
const heading = make("h2", {}), strip = make("p", { class: "strip" }), numbers = make("div");
const chooser = make("select", { "data-focus": "quantity",
  onchange: ({ target }) => choose({ quantity: target.value }) });
const reasons = [make("pre", { tabindex: 0, "aria-label": "why this value" }),
  make("pre", { tabindex: 0, "aria-label": "why this gradient" })];
const causes = make("div", { class: "causes" }), causes_title = make("h3", {});
const spoken = make("p", { class: "spoken", role: "status", "aria-live": "polite" });
export const selection = make("section", { class: "selection", "aria-label": "the selected pair" }, heading, strip,
  numbers, make("label", {}, "quantity ", chooser), spoken);
export const reasons_panel = make("section", { class: "reasons", "aria-label": "why" },
  make("h3", {}, "Why this number, and why its gradient"), reasons, causes_title, causes);

function show_numbers() {
  const focus = document.activeElement?.dataset.focus;
  numbers.replaceChildren(table_of(["", "value", "dLoss/d", "why zero"],
    learners.filter(({ look: seen }) => seen).flatMap(rows_of)));
  if (!focus?.startsWith("row ")) return;
  numbers.querySelector(`[data-focus="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
}

let before = [];
drawn.push(() => {
  settle();
  const here = selected();
  if (!here) return;
  const { learner, look: seen, sheet, place } = here;
  const all = [...learners.map((each) => each.look), place, learner.index, state.part, why.texts, state.playing];
  if (all.length === before.length && all.every((each, k) => each === before[k])) return void find_why();
  before = all;
  heading.replaceChildren("query ", ...token(seen, state.i), " \u2192 key ", ...token(seen, state.j));
  strip.replaceChildren(...token_strip(seen));
  show_numbers();
  const names = of_pairs(seen).map(({ name }) => name);
  chooser.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
  chooser.value = state.quantity;
  const kind = kind_at(seen, sheet);
  const cause = kind && kind !== "lives" ? ` (${kind})` : "";
  spoken.textContent = `${sheet.quantity.name} of model ${learner.index + 1}, i=${state.i} j=${state.j}: ` +
    `${shown(learner, sheet, "value")}, gradient ${shown(learner, sheet, "gradient")}${cause}`;
  counted(2).forEach((k) => reasons[k].textContent = state.playing ? "Pause to see why."
    : why.texts[k] ?? (why.texts.length ? "" : "Looking for it."));
  causes_title.textContent = `Where ${title_of(place_text(sheet, ["leading"]), "gradient")} is zero: ` +
    `model ${learner.index + 1}`;
  causes.replaceChildren(...causes_of(here));
  find_why();
});
