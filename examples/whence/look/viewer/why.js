// View: why entries of a gradient are zero, or nearly: the share of each reason by layer and head, and where it holds.
import { acting_row, counted, make, note, right_cell, sum_of, table_of } from "./elements.js";
import { state } from "./state.js";
import { data, quantities, run_shown, sheet_of } from "./data.js";
import { one_share, reason_bar } from "./colour.js";
import { current_quantity, of_selection, place_words, single_run, stage, update } from "./frame.js";
import { fitting_cell, map_figure, reason_at, reason_text, text_at, where } from "./map.js";

const reasoned = () => quantities.filter(({ layers }) => layers.some((part) => part.reasons != null));

function why_sheet(at) {
  const run = single_run();
  const sheet = sheet_of(state.quantity, "gradient", at, run) ?? sheet_of(state.quantity, "value", at, run);
  return sheet?.reasons ? sheet : null;
}

function causes_of(quantity) {
  const probe = quantity.probe ?? quantity.name;
  return run_shown().causes.filter((cause) => cause.probe === probe);
}

function draw_shares() {
  const { reasons } = run_shown(), causes = causes_of(current_quantity());
  if (!causes.length) return;
  const present = counted(reasons.length).filter((index) => causes.some(({ by }) => by[index] > 0));
  const named = (index) => [reason_bar(reasons, one_share(index), 16, 16), " ", reasons[index].kind];
  const head = ["layer", "head", "entries", "shares", ...present.map(named), "exactly 0"];
  const lines = causes.map((cause) => shares_line(cause, reasons, present));
  stage.append(make("section", {}, make("h3", {}, `Entries of dLoss/d${state.quantity} by reason`),
    table_of(head, lines, { class: "shares" })));
}

function shares_line({ layer, head, entries, zeros, by }, reasons, present) {
  const percent = (count) => `${(100 * count / entries).toFixed(1)} %`;
  const count = (number) => right_cell([number, make("small", {}, " " + percent(number))]);
  const select = () => update({ layer: layer ?? state.layer, head: head ?? state.head });
  const here = (layer ?? state.layer) === state.layer && (head ?? state.head) === state.head;
  const shares = reason_bar(reasons, by.map((number) => number / entries), 180, 16);
  return acting_row(`shares ${layer} ${head}`, select, [
    ...[layer ?? "\u2013", head ?? "all", entries].map(right_cell), make("td", {}, shares),
    ...present.map((index) => count(by[index])), count(zeros)], { "aria-current": here });
}

function draw_reasons() {
  const sheet = why_sheet(state);
  if (!sheet) return stage.append(note(`No reasons recorded for ${place_words()}.`));
  const by = sheet.run.reasons.map(() => 0);
  for (const reason of sheet.reasons) ++by[reason];
  const cell = fitting_cell(sheet, Math.min(720, Math.max(300, stage.clientWidth * 0.55)), 24);
  const told = make("div", { class: "told", role: "status" });
  const figure = map_figure({ ...sheet, title: `reasons of ${sheet.title}`,
    note: `${place_words()}: ${zero_words(sheet, by)}` }, cell, { reasons: true });
  stage.append(make("div", { class: "beside" }, figure, make("div", {}, told, legend(sheet.run.reasons, by))));
  of_selection(() => told.replaceChildren(...reason_card(sheet)));
}

// Counted in the numbers themselves, so that the reasons can be seen to be complete.
function zero_words(sheet, by) {
  if (sheet.kind !== "gradient") return `${sum_of(by.slice(1))} entries have a reason`;
  const zeros = counted(sheet.cells.length).filter((cell) => sheet.cells[cell] === 0);
  const told = zeros.filter((cell) => sheet.reasons[cell] > 0).length;
  return `${zeros.length} of ${sheet.cells.length} entries are exactly 0; ${told} of them have a reason`;
}

function reason_card(sheet) {
  const index = reason_at(sheet, state), reason = sheet.run.reasons[index];
  if (!reason) return [];
  const value = make("b", {}, sheet.kind === "gradient" ? text_at({ ...sheet, hidden: null }, state) : "");
  return [make("h4", {}, "Here, ", ...where(sheet, state), ": ", value),
    make("p", {}, index ? `${reason.kind}: ${reason.text}.` : "Not zero."),
    ...(reason.change ? [make("p", {}, `What would change it: ${reason.change}.`)] : []),
    ...(reason.places.length ? [make("p", {}, "Where: ", make("code", {}, reason.places.join("; ")))] : [])];
}

function legend(reasons, by) {
  const lines = counted(reasons.length).filter((index) => by[index] > 0).map((index) => make("li", {},
    reason_bar(reasons, one_share(index), 28, 28), make("div", {}, ...reason_words(reasons[index], by[index]))));
  return make("ul", { class: "legend", "aria-label": "reasons in this map" }, lines);
}

const reason_words = ({ kind, text, change, places, vanishing }, count) => [
  make("b", {}, kind), ` ${count} entries${vanishing ? ", small but not 0" : ""}`, make("br"), text,
  change ? `. Changes with: ${change}` : "", make("br"), make("code", {}, places.join("; "))];

export const why_view = {
  key: "why", title: "Why zero?", wants: () => !data.overview && reasoned().length > 0,
  hint: "Look for the reason that covers most cells: it says what would have to change before these entries can learn.",
  quantities: reasoned,
  controls: () => ["layer", "head", "quantity", "c"],
  readout(at) {
    const sheet = why_sheet(at);
    if (!sheet) return [place_words()];
    return [`${place_words()}, `, ...where(sheet, at), ": ", make("b", {}, reason_text(sheet, at))];
  },
  draw() {
    draw_shares();
    draw_reasons();
  },
};
