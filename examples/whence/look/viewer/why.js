// View: why entries of a gradient are zero, or nearly: the share of each cause by layer and head, and where it holds.
import { acting_row, counted, make, note, right_cell, sum_of, table_of } from "./elements.js";
import { state } from "./state.js";
import { data, extent_of, index_along, kept_along, quantities, run_shown, sheet_of, telling } from "./data.js";
import { cause_bar, one_share } from "./colour.js";
import { current_quantity, of_selection, place_words, single_run, stage, update } from "./frame.js";
import { cause_at, cause_text, fitting_cell, map_figure, text_at, where } from "./map.js";

const with_causes = () => quantities.filter(({ layers }) => layers.some((part) => part.causes != null));

function why_sheet(at) {
  const run = single_run();
  const sheet = sheet_of(state.quantity, "gradient", at, run) ?? sheet_of(state.quantity, "value", at, run);
  return sheet?.causes ? sheet : null;
}

function shares_of(quantity) {
  const probe = quantity.probe ?? quantity.name;
  return run_shown().shares.filter((share) => share.probe === probe);
}

function draw_shares() {
  const { causes } = run_shown(), all = shares_of(current_quantity());
  if (!all.length) return;
  const present = counted(causes.length).filter((index) => all.some(({ by }) => by[index] > 0));
  const named = (index) => [cause_bar(causes, one_share(index), 16, 16), " ", causes[index].kind];
  const head = ["layer", "head", "entries", "shares", ...present.map(named), "exactly 0"];
  const lines = all.map((share) => shares_line(share, causes, present));
  stage.append(make("section", {}, make("h2", {}, `Entries of dLoss/d${state.quantity} by cause`),
    table_of(head, lines, { class: "shares" })));
}

function shares_line({ layer, head, entries, zeros, by }, causes, present) {
  const percent = (count) => `${(100 * count / entries).toFixed(1)} %`;
  const count = (number) => right_cell([number, make("small", {}, " " + percent(number))]);
  const heads = head === null ? 0 : extent_of(current_quantity(), layer, "h");
  const select = () => update({ layer: layer ?? state.layer, ...(heads ? kept_along("h", heads, head) : {}) });
  const here = (layer ?? state.layer) === state.layer && (!heads || head === index_along("h", heads, state));
  const shares = cause_bar(causes, by.map((number) => number / entries), 180, 16);
  return acting_row(`shares ${layer} ${head}`, select, [
    ...[layer ?? "\u2013", head ?? "all", entries].map(right_cell), make("td", {}, shares),
    ...present.map((index) => count(by[index])), count(zeros)], { "aria-current": here });
}

function draw_causes() {
  const sheet = why_sheet(state);
  if (!sheet) return stage.append(note(`No causes recorded for ${place_words()}.`));
  const by = sheet.run.causes.map(() => 0);
  for (const cause of sheet.causes) ++by[cause];
  const cell = fitting_cell(sheet, Math.min(720, Math.max(300, stage.clientWidth * 0.55)), 24);
  const told = make("div", { class: "told", role: "status" });
  const figure = map_figure({ ...sheet, title: `causes of ${sheet.title}`,
    note: `${place_words()}: ${zero_words(sheet, by)}` }, cell, { causes: true });
  stage.append(make("div", { class: "beside" }, figure, make("div", {}, told, legend(sheet.run.causes, by))));
  of_selection(() => told.replaceChildren(...cause_card(sheet)));
}

// Counts zeros in the numbers themselves, to show that the causes are complete.
function zero_words(sheet, by) {
  if (sheet.kind !== "gradient") return `${sum_of(by.slice(1))} entries have a cause`;
  const zeros = counted(sheet.cells.length).filter((cell) => sheet.cells[cell] === 0);
  const told = zeros.filter((cell) => sheet.causes[cell] > 0).length;
  return `${zeros.length} of ${sheet.cells.length} entries are exactly 0; ${told} of them have a cause`;
}

function cause_card(sheet) {
  const index = cause_at(sheet, state), cause = sheet.run.causes[index];
  if (!cause) return [];
  const value = make("b", {}, sheet.kind === "gradient" ? text_at({ ...sheet, hidden: null }, state) : "");
  return [make("h3", {}, "Here, ", ...where(sheet, state), ": ", value),
    make("p", {}, index ? `${cause.kind}: ${cause.text}.` : "Not zero."),
    ...(cause.change ? [make("p", {}, `What would change it: ${cause.change}.`)] : []),
    ...(cause.places.length ? [make("p", {}, "Where: ", make("code", {}, cause.places.join("; ")))] : [])];
}

export function legend(causes, by) {
  const lines = counted(causes.length).filter((index) => by[index] > 0).map((index) => make("li", {},
    cause_bar(causes, one_share(index), 28, 28), make("div", {}, ...cause_words(causes[index], by[index]))));
  return make("ul", { class: "legend", "aria-label": "causes in this map" }, lines);
}

const cause_words = ({ kind, text, change, places, vanishing }, count) => [
  make("b", {}, kind), ` ${count} entries${vanishing ? ", small but not 0" : ""}`, make("br"), text,
  change ? `. Changes with: ${change}` : "", make("br"), make("code", {}, places.join("; "))];

export const why_view = {
  key: "why", title: "Zeros", group: "Why", wants: () => with_causes().length > 0,
  hint: "Look for the cause that covers most cells: it says what would have to change before these entries can learn.",
  quantities: with_causes, opens_on: () => telling(with_causes()),
  controls: () => ["layer", "head", "quantity", "c"],
  readout(at) {
    const sheet = why_sheet(at);
    if (!sheet) return [place_words()];
    return [`${place_words()}, `, ...where(sheet, at), ": ", make("b", {}, cause_text(sheet, at))];
  },
  draw() {
    draw_shares();
    draw_causes();
  },
};
