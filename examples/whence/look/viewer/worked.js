// Part of the view "quantities": the selected number as a sum, its gradient as a sum, and the walk from number to
// number, from the loss down.
import {
  button, clamped, command_code, format, make, name_cell, note, on_keys, sum_of, table_of, unique
} from "./elements.js";
import { state } from "./state.js";
import {
  data, decode, extent_of, extremes_of, index_along, kept_along, letters_of, measured, part_of, place_text, tokens,
  words_of_place
} from "./data.js";
import { check_line, choose, current_quantity, number_cell, of_selection, shown, stage, update } from "./frame.js";
import { equation } from "./equation.js";
import { label_of } from "./map.js";

// ---- Numbers
// A number is a quantity, a layer and an index into the layer's array; number_of takes the selected place.
const of_probe = (probe) => measured.find((quantity) => quantity.probe === probe);
const array_of = ({ quantity, layer }, field) => decode(part_of(quantity, layer), field);
const number_at = (number, field) => array_of(number, field)?.[number.index];

function number_of(quantity) {
  const part = quantity && !quantity.parameter && part_of(quantity, state.layer);
  if (!part) return null;
  const index = letters_of(quantity).reduce((sum, letter, axis) =>
    sum * part.shape[axis] + clamped(index_along(letter, part.shape[axis], state), 0, part.shape[axis] - 1), 0);
  return { quantity, layer: state.layer, index };
}
const selected_number = () => number_of(current_quantity());

// Its index along each axis, as [letter, index].
function axes_of({ quantity, layer, index }) {
  const letters = letters_of(quantity), { shape } = part_of(quantity, layer), found = [];
  for (let axis = letters.length - 1, rest = index; axis >= 0; rest = Math.floor(rest / shape[axis--])) {
    found.unshift([letters[axis], rest % shape[axis]]);
  }
  return found;
}

const state_of = (number) => ({ quantity: number.quantity.name, layer: number.layer,
  ...Object.assign({}, ...axes_of(number).map(([letter, index]) =>
    kept_along(letter, extent_of(number.quantity, number.layer, letter), index))) });
const short_name = (number) => `${number.quantity.name}[${axes_of(number).map(([, index]) => index).join(",")}]`;
const long_name = (number) => make("span", {}, `${number.quantity.name}[`,
  ...axes_of(number).flatMap(([letter, index], k) => [k ? ", " : "", `${letter}=`, label_of(letter, index)]), "]");

// ---- Links
// Links are derivatives between neighbours: of `to` at b by `from` at a, past no other named quantity.
const links_in = (layer) => (data.links ?? []).filter((link) => link.layer === layer);
const linked = ({ quantity, layer }, side) => links_in(layer).filter((link) => link[side] === quantity.probe);

// Returns the other ends of a number's links with the derivatives: its inputs if it is `to`, its consumers if `from`.
function neighbours(number, side) {
  return linked(number, side).flatMap((link) => {
    const a = decode(link, "a", "steps"), b = decode(link, "b", "steps") ?? a, derivative = decode(link, "derivative");
    const [here, there] = side === "from" ? [a, b] : [b, a];
    const quantity = of_probe(side === "from" ? link.to : link.from);
    return Array.from(here.keys()).filter((k) => here[k] === number.index).map((k) =>
      ({ number: { quantity, layer: number.layer, index: there[k] }, derivative: derivative[k] }));
  });
}

// Returns products of the derivatives and the other numbers' values, or their gradients.
function terms_of(number, side, field) {
  const terms = neighbours(number, side).map((term) => ({ ...term, other: number_at(term.number, field) ?? NaN }));
  for (const term of terms) term.product = term.derivative * term.other;
  return terms.sort((one, other) => Math.abs(other.product) - Math.abs(one.product));
}

const total_of = (terms) => sum_of(terms.map(({ product }) => product));
const size_of = (terms) => sum_of(terms.map(({ product }) => Math.abs(product)));
const apart = (terms, value) => Math.abs(total_of(terms) - value) / (size_of(terms) || Math.abs(value) || 1);

// In long texts only some queries have links. A key's gradient is a sum over all queries; a key's value is not.
const linked_rows = ({ layer }) => data.link_rows?.[layer] ?? [];
function complete(number, side) {
  const rows = linked_rows(number), own = new Map(axes_of(number)).get("i");
  return rows.length >= tokens.length || rows.includes(own) || (own === undefined && side === "to");
}

function explain_words(number, of) {
  const place = words_of_place(number.quantity, part_of(number.quantity, number.layer), state_of(number));
  return `${data.command} --explain "${of}${place_text(place)}"`;
}

const by_command = (number, of, ...words) => note(...words,
  data.command ? [" This command works it out: ", command_code(explain_words(number, of))] : "");
const go_button = (words, focus, act, attributes) => button(words, focus, act, { class: "go", ...attributes });

// Returns a link to a query that has links, where the number is of a query.
function row_link(number, i) {
  if (!letters_of(number.quantity).includes("i")) return String(i);
  return go_button(i, `row ${i}`, () => {
    choose({ i });
    document.querySelector(".worked")?.focus({ preventScroll: true });
  });
}

// Says why a side has no table; null if it has one.
function lacking_words(number, side, of) {
  const kind = data.causes[cause_of_number(number)]?.kind;
  if (kind === "masked") return by_command(number, of, "The mask hides this pair: it is no part of the model.");
  if (linked(number, side).length) {
    return complete(number, side) ? null : by_command(number, of, "The page has the links of these queries alone:",
      ...linked_rows(number).flatMap((i) => [" ", row_link(number, i)]), ". This number needs others.");
  }
  if (side === "from" && is_left_out(number)) return by_command(number, of, left_out_words);
  const other = linked(number, side === "from" ? "to" : "from").length;
  if (!other) return by_command(number, of, "The page has no links of this quantity.");
  if (side === "from") return make("p", {}, "It arrives from the residual stream after the layer.");
  return by_command(number, of, "Its parts have no names here.");
}

// Links are kept where their sum is autograd's number; elsewhere the page claims nothing.
const is_left_out = ({ quantity, layer }) =>
  data.left_out?.some(([of_layer, from]) => of_layer === layer && from === quantity.probe);
const left_out_words = "Left out: the parts of its gradient do not add up to autograd\u2019s number. The reason is " +
  "rounding, which --dtype f64 removes, or an op whose backward is not its derivative.";

const cause_of_number = ({ quantity, layer, index }) => decode(part_of(quantity, layer), "causes", 8)?.[index];

const most_terms = 12;
function terms_table(terms, heads, focus, toward_loss) {
  const line = ({ number, other, derivative, product }, k) => make("tr",
    { onclick: () => walk_to(number, toward_loss) }, name_cell(go_button(long_name(number), `${focus} ${k}`)),
    [other, derivative, product].map(number_cell));
  const rest = terms.slice(most_terms), more = make("tr", { class: "more" }, name_cell(`and ${rest.length} more`),
    make("td"), make("td"), number_cell(total_of(rest)));
  return table_of(heads, [...terms.slice(0, most_terms).map(line), ...(rest.length ? [more] : [])], { class: "terms" });
}

function value_side(number) {
  const value = number_at(number, "value"), { name, equation: text, line } = number.quantity;
  const masked = data.causes[cause_of_number(number)]?.kind === "masked";
  const title = make("h3", {}, `${name} = `, make("b", { class: "whole" }, masked ? "masked" : String(value)));
  const source = note(text ? ["= ", equation(text), "  "] : "", make("code", {}, line ?? ""));
  const lacking = lacking_words(number, "to", "");
  if (lacking) return [title, source, lacking];
  const terms = terms_of(number, "to", "value");
  if (!terms.length) return [title, source, make("p", {}, "No other number reaches it.")];
  const groups = unique(terms.map((term) => term.number.quantity)).map((quantity) =>
    ({ quantity, terms: terms.filter((term) => term.number.quantity === quantity) }));
  return [title, source, terms_table(terms, ["made of", "value", `d${name}/d it`, "product"], "worked value", false),
    make("p", { class: "check" }, ...sum_sentence(value, terms, groups))];
}

// A product of two quantities is a sum over each of them, so each sum is complete.
function sum_sentence(value, terms, groups) {
  const closes = (some) => apart(some, value) <= 1e-5;
  if (closes(terms)) return [make("b", {}, "The products add up to "), make("b", {}, shown(total_of(terms))), "."];
  const whole = groups.filter((group) => closes(group.terms));
  if (!whole.length) return ["The equation uses these numbers, but not as a sum of products."];
  const sums = whole.map((group) => `those over ${group.quantity.name} alone to ${shown(total_of(group.terms))}`);
  return [make("b", {}, `The products add up, ${sums.join(", ")}.`)];
}

function gradient_side(number) {
  const gradient = number_at(number, "gradient"), { name } = number.quantity;
  if (gradient === undefined) return [make("h3", {}, `No gradient of ${name} is recorded.`)];
  const title = make("h3", {}, `dLoss/d${name} = `, make("b", { class: "whole" }, String(gradient)));
  const cause = gradient === 0 ? [zero_sentence(number)] : [];
  const lacking = lacking_words(number, "from", "dLoss/d");
  if (lacking) return [title, ...cause, lacking];
  const terms = terms_of(number, "from", "gradient");
  const heads = ["handed back by", "dLoss/d it", `d it/d${name}`, "product"];
  const table = terms.length ? terms_table(terms, heads, "worked gradient", true)
    : make("p", {}, "No number hands it a gradient.");
  return [title, ...cause, table, difference_sentence(terms, gradient, number)];
}

// Compares the sum with the bound on rounding that look/links.cpp derives.
function difference_sentence(terms, gradient, { quantity, layer }) {
  const part = part_of(quantity, layer), all = decode(part, "gradient");
  const beside = 0.1 * Math.max(...extremes_of(all).map(Math.abs)), size = size_of(terms), exact = part.bits === 64;
  const rounded = sum_of(terms.map(({ number, other }) => Math.abs(other * number_at(number, "value"))));
  const allowance = (exact ? 1e-10 : 1e-5) * (size + beside) + (exact ? 4e-16 : 2.4e-7) * rounded;
  const off = apart(terms, gradient), allowed = allowance / (size || Math.abs(gradient) || 1);
  const equal = Math.abs(total_of(terms) - gradient) <= allowance;
  const sum = total_of(terms);
  return check_line(equal, `Their sum is ${shown(sum)}`,
    `, autograd\u2019s number to ${format(off, 2)} of the sum of sizes (${format(allowed, 1)} allowed).`, sum);
}

function zero_sentence(number) {
  const cause = data.causes[cause_of_number(number)];
  if (!cause || !cause_of_number(number)) return make("p", {}, "It is exactly 0.");
  return make("p", {}, make("b", {}, `0, ${cause.kind}: `), cause.text, ".",
    cause.change ? ` What would change it: ${cause.change}.` : "");
}

// ---- The walk: a chain of numbers from the loss down, each made of the next, through the selected one
const key_of_number = ({ quantity, layer, index }) => [quantity.name, layer, index].join(":");
function number_of_key(key) {
  const [name, layer, index] = key.split(":"), quantity = measured.find((each) => each.name === name);
  const number = { quantity, layer: Number(layer), index: Number(index) };
  return quantity && part_of(quantity, number.layer) && number_at(number, "value") !== undefined ? [number] : [];
}

function walk_now(number) {
  const walk = state.walk.split(" ").flatMap(number_of_key), keys = walk.map(key_of_number);
  const at = keys.indexOf(key_of_number(number));
  return at < 0 ? { walk: [number], at: 0 } : { walk, at };
}

// The page keeps its place; the keyboard goes on at the first line of the same table.
function go(number, walk) {
  const section = document.querySelector(".worked"), top = section.getBoundingClientRect().top;
  const side = /^worked (value|gradient)/.exec(document.activeElement?.dataset.focus)?.[0];
  update({ ...state_of(number), walk: walk.map(key_of_number).join(" ") });
  const now = document.querySelector(".worked");
  scrollBy(0, now.getBoundingClientRect().top - top);
  if (side) (now.querySelector(`[data-focus="${side} 0"]`) ?? now).focus({ preventScroll: true });
}

function walk_to(number, toward_loss) {
  const { walk, at } = walk_now(selected_number()), key = key_of_number(number);
  const next = walk[toward_loss ? at - 1 : at + 1];
  if (next && key_of_number(next) === key) return go(number, walk);
  go(number, toward_loss ? [number, ...walk.slice(at)] : [...walk.slice(0, at + 1), number]);
}

// Leaves the number walked to last: the end of the walk, or its start if it went towards the loss.
function walk_back() {
  const { walk, at } = walk_now(selected_number());
  if (at > 0) go(walk[at - 1], walk.slice(0, at));
  else if (walk.length > 1) go(walk[1], walk.slice(1));
}

// The gradient enters the layer at a number of which no named number is made; strongest_end is the strongest with links.
const is_end = (number) => linked(number, "to").length > 0 && !linked(number, "from").length;
function strongest_end() {
  const { layer } = state, ends = (each) => part_of(each, layer) && is_end({ quantity: each, layer });
  const quantity = measured.find(ends);
  const gradient = quantity && array_of({ quantity, layer }, "gradient");
  if (!gradient) return null;
  const sizes = gradient.map((value, index) => complete({ quantity, layer, index }, "to") ? Math.abs(value) : -1);
  return { quantity, layer, index: sizes.indexOf(extremes_of(sizes)[1]) };
}

function crumbs(number) {
  const { walk, at } = walk_now(number), end = strongest_end();
  const crumb = (each, k) => make("li", {}, go_button(short_name(each), `crumb ${k}`, () => go(each, walk),
    { "aria-current": k === at ? "true" : null }));
  const loss = go_button("loss", "crumb loss", () => go(end, [end]),
    { disabled: !end, title: "start at the strongest gradient that reaches the layer" });
  return make("nav", { "aria-label": "walk from the loss to this number" }, make("ol", { class: "crumbs" },
    make("li", {}, loss), is_end(walk[0]) ? null : make("li", {}, "\u2026"), walk.map(crumb)));
}

stage.addEventListener("keydown", on_keys((key) =>
  key === "Backspace" && document.querySelector(".worked") ? true : undefined, walk_back));

export function draw_worked() {
  if (!data.links || !selected_number()) return;
  const section = make("section", { class: "worked", tabindex: -1, "aria-label": "this number, worked out" });
  stage.append(section);
  of_selection(() => {
    const number = selected_number(), title = make("h2", { "aria-live": "polite" }, "This number, worked out: ",
      long_name(number), `, layer ${number.layer}`);
    if (state.run !== "this") return section.replaceChildren(title, note(other_run_words));
    section.replaceChildren(title, crumbs(number), note("Each line leads to its number. Backspace goes back."),
      make("div", { class: "sides" }, [value_side, gradient_side].map((side) => make("div", {}, side(number)))));
  });
}
const other_run_words = "Derivatives are recorded for this run alone: choose it under \u201cshown\u201d.";
