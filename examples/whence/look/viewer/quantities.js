// View: all quantities of one layer and head next to each other, or one large; then the selected row, and the same
// quantity in all other layers and heads.
import { button, clamped, format, make, note } from "./elements.js";
import { followers, state } from "./state.js";
import {
  data, extent_of, index_along, is_row, letters_of, measured, places_of, quantities, same_numbers, sheet_of, telling, word_of
} from "./data.js";
import {
  choose, current_quantity, has_channels, has_heads, has_moments, moment, of_selection, place_words, stage, update
} from "./frame.js";
import {
  caption_of, cell_of, fitting_cell, geometry, label_of, map_figure, on_map_keys, paint_base, paint_cursor,
  table_behind, text_at, values_readout
} from "./map.js";
import { equation } from "./equation.js";
import { row_strips } from "./curves.js";
import { draw_worked } from "./worked.js";

const kinds = () => state.part === "both" ? ["value", "gradient"] : [state.part];
const parameters_here = () => quantities.filter(({ parameter, layers: [{ layer }] }) =>
  parameter && (layer === null || layer === state.layer));

// Returns the sum's quantities in its order: the scheme's vectors, the scores, the scheme's pairs, the logits and the
// pattern. Copies, quantities with channels and all but the last three steps are left to the rest.
function of_the_sum() {
  const named = (name) => measured.find((each) => each.name === name), scores = named("scores"), logits = named("logits");
  const own = measured.filter((each) => each.scheme && !has_channels(each) && letters_of(each).length > 1 && !same_numbers(each, scores));
  const of_query = (each) => /^(h )?i \w$/.test(letters_of(each).join(" ")), behind = own.filter(of_query);
  const steps = behind.length > 3 ? behind.filter((each) => !is_added(each)).slice(-3) : behind;
  return [...own.filter((each) => !of_query(each)), scores, ...steps, same_numbers(scores, logits) ? null : logits, named("pattern")].filter(Boolean);
}
// True if the logits are the scores plus this: its map repeats two others.
function is_added(quantity) {
  const [added, scores, logits] = [quantity.name, "scores", "logits"].map((name) => sheet_of(name, "value", state));
  return added?.cells.length === logits?.cells.length && added.cells.every((value, cell) => logits.hidden?.[cell] ||
    Math.abs(scores.cells[cell] + value - logits.cells[cell]) <= 1e-4 * (1 + Math.abs(logits.cells[cell])));
}
let rest_open = false;

function offered_quantities() {
  if (state.show === "parameters") return parameters_here();
  return state.show === "one" ? [...measured, ...parameters_here()] : measured;
}

const main_names = () => (state.show === "one" ? [current_quantity()] : state.show === "all" ? of_the_sum() : offered_quantities())
  .map(({ name }) => name);
const rest_names = () => state.show !== "all" ? [] : measured.map(({ name }) => name).filter((name) => !main_names().includes(name));
const chosen_names = () => [...main_names(), ...(rest_open ? rest_names() : [])];
// Gradients are of the step at which they are alive, unless another run is chosen.
function sheet_here(name, kind) {
  if (kind === "value" || !has_moments()) return sheet_of(name, kind, state, state.run);
  const at = { ...state, beside: state.moment }, sheet = sheet_of(name, kind, at, "beside");
  return sheet && { ...sheet, title: `${sheet.title}, ${moment().label}` };
}
const sheets_named = (names) => names.flatMap((name) => kinds().map((kind) => sheet_here(name, kind))).filter(Boolean);
const chosen_sheets = () => sheets_named(chosen_names());

// Returns the sheets that share the selected quantity's row and cursor.
function sheets_of_row() {
  const sheets = chosen_sheets(), first = sheets.find((each) => each.name === state.quantity);
  const alike = (each) => ["row_axis", "column_axis", "columns"].every((key) => each[key] === first[key]);
  return first ? sheets.filter(alike) : [];
}

// ---- Panels
const panel_gap = 16;
const panels_across = (count, space) => Math.min(count, space < 700 ? 1 : space < 1100 ? 2 : state.part === "both" ? 4 : 3);

function draw_panels() {
  stage.append(...panels_of(main_names()));
  const rest = rest_names();
  if (!rest.length) return;
  if (rest.includes(state.quantity)) rest_open = true;
  const details = make("details", { class: "rest", open: rest_open }, make("summary", {}, `The rest: ${rest.join(", ")}`),
    rest_open ? panels_of(rest) : null);
  details.addEventListener("toggle", () => {
    if (details.open === rest_open) return;
    rest_open = details.open;
    update();
  });
  stage.append(details);
}

function panels_of(names) {
  const sheets = sheets_named(names), space = stage.clientWidth, across = Math.max(1, panels_across(sheets.length, space));
  const room = Math.floor((space - panel_gap * (across - 1)) / across), large = state.show === "one";
  const missing = names.filter((name) => !sheets.some((each) => each.name === name));
  return [missing.length ? note(`Not recorded for ${place_words()}: ${missing.join(", ")}.`) : null,
    make("div", { class: "panels", style: `--across: ${across}` },
      sheets.map((each) => is_row(each) ? row_figure(each, room) : panel_of(each, room, large)))].filter(Boolean);
}

function panel_of(sheet, room, large) {
  const fitting = Math.max(fitting_cell(sheet, Math.min(room, large ? 900 : 480), large ? 24 : 40), large && state.numbers ? 30 : 0);
  // browsers limit the size of a canvas
  const cell = Math.min(fitting, 8192 / (devicePixelRatio || 1) / Math.max(sheet.rows, sheet.columns));
  const pick = (place) => sheet.name === state.quantity ? choose(place) : update({ ...place, quantity: sheet.name });
  return map_figure(sheet, cell, { numbers: large && state.numbers, pick });
}

// A single axis is a row of bars.
function row_figure(sheet, room) {
  const value = make("output"), strips = make("div", { class: "strips", tabindex: 0, role: "application", "aria-label":
    `${sheet.title}; arrow keys move the cursor`, "data-focus": `map ${sheet.title}`, onkeydown: on_map_keys(sheet) });
  followers.push(row_strips(strips, [sheet], 0, Math.min(room, 640)), (at) => value.textContent = text_at(sheet, at));
  return make("figure", { class: "panel" }, make("header", {}, make("h3", {}, sheet.title), value),
    caption_of(sheet, false), strips, table_behind(sheet));
}

// ---- The selected row
function draw_row() {
  const [first] = sheets_of_row();
  if (!first) return;
  const title = make("h2"), strips = make("div", { class: "strips" });
  stage.append(make("section", { "aria-label": "selected row" }, title, strips));
  of_selection(() => {
    const sheets = sheets_of_row(), row = Math.min(cell_of(first, state).row, first.rows - 1);
    const name = is_row(first) ? [first.title] : [`${word_of(first.row_axis)} `, label_of(first.row_axis, row)];
    title.replaceChildren(...name, ` of ${place_words()}`);
    return row_strips(strips, sheets, row);
  });
}

// ---- All layers and heads
const head_at = ({ layer, head }, quantity) => index_along("h", extent_of(quantity, layer, "h"), { head });
const slice_words = (at, quantity) => quantity.parameter ? `slice ${at.c}`
  : `layer ${at.layer}${has_heads(quantity) ? `, head ${head_at(at, quantity)}` : ""}` +
    (has_channels(quantity) ? `, channel ${at.c}` : "");
const is_here = (at, quantity) => (quantity.parameter || at.layer === state.layer) &&
  (!has_heads(quantity) || head_at(at, quantity) === head_at({ ...at, head: state.head }, quantity)) &&
  (!has_channels(quantity) || at.c === state.c);

// Draws all places of one quantity small: where to look next. Layers go down, heads or channels across.
function draw_multiples() {
  const quantity = current_quantity(), kind = kinds()[0], places = places_of(quantity.name);
  const across = Math.min(8, places.filter(({ layer }) => layer === places[0].layer).length);
  if (places.length < 2 || letters_of(quantity).length < 2) return;
  const space = Math.floor((stage.clientWidth - 6) / across) - 28;
  const grid = make("div", { class: "multiples", style: `grid-template-columns: repeat(${across}, max-content)` },
    places.map((at) => small_map(at, quantity, kind, clamped(space, 60, 300))));
  const slices = has_channels(quantity) ? " and channels" : has_heads(quantity) ? " and heads" : "";
  const where = quantity.parameter ? "slices" : `layers${slices}`;
  stage.append(make("section", {}, make("h2", {}, `${quantity.name} in all ${where}`), grid));
}

function small_map(at, quantity, kind, width) {
  const sheet = sheet_of(quantity.name, kind, at, state.run), name = slice_words(at, quantity);
  const value = make("span", { class: "what" }, "not recorded");
  const { layer = state.layer, head, c } = quantity.parameter ? { ...at, layer: undefined } : at;
  const place = { layer, c, head: has_heads(quantity) ? head : state.head };
  const small = button([make("span", { class: "where" }, name), value], `small ${name}`, () => update(place),
    { "aria-pressed": is_here(at, quantity) });
  if (!sheet) return small;
  const panel = { sheet, canvas: make("canvas") }, exact = width / Math.max(sheet.columns, sheet.rows);
  small.append(panel.canvas);
  paint_base(panel, geometry(sheet, exact >= 3 ? Math.floor(exact) : exact, { axes: false }));
  value.style.maxWidth = `${Math.max(110, panel.g.width)}px`;
  const extent = sheet.extremes.map((end) => format(end, 3)).join(" \u2026 ");
  followers.push((cursor) => {
    paint_cursor(panel, cursor);
    value.textContent = `${text_at(sheet, cursor)} in ${extent}`;
  });
  return small;
}

export const quantities_view = {
  key: "quantities", title: "Quantities", group: "Explore", wants: () => measured.length > 0,
  hint: "The maps are in the order of the sum, from the scores to the pattern. A row that stands out is a query that " +
    "finds, counts or reads other keys than its neighbours do.",
  both: true, quantities: offered_quantities, opens_on: () => telling(offered_quantities()),
  controls: () => ["layer", "head", "quantity", "c", "part", ...(state.part === "value" || !has_moments() ? [] : ["moment"]), "show", "fit",
    ...(state.show === "one" ? ["numbers"] : [])],
  readout: (at) => values_readout(sheets_of_row(), at),
  draw() {
    stage.append(...data.schemes.filter((scheme) => scheme.equation).map(({ name, title, paper, equation: text }) =>
      make("p", { class: "scheme" }, make("b", { title: `${title}, ${paper}` }, name), ": ", equation(text))));
    stage.append(make("h2", {}, `Quantities of ${place_words()}`));
    draw_panels();
    if (!current_quantity()) return;
    draw_worked();
    draw_row();
    draw_multiples();
  },
};
