// The frame of every view: elements, the state and its place in the address, controls, tabs, the cursor, the theme.
import {
  button, clamped, counted, dress, format, make, note, on_keys, right_cell, token_text, unique
} from "./elements.js";
import { followers, pointer, redrawn, start, state } from "./state.js";
import { besides, data, letters_of, places_of, run_named, token_at, tokens } from "./data.js";
import { read_theme } from "./colour.js";

// A token may have any writing direction, so its text is isolated from its neighbours.
export const token_name = (index) =>
  make("span", { class: "name" }, `${index} \u2018`, token_text(token_at(index)), "\u2019");

// ---- State
export const shown = (value) => state.digits ? String(value ?? "masked") : format(value);
export const number_cell = (value) => dress(right_cell(shown(value)), { title: value });
export const reading = (name, words) => [" ", make("span", { class: "reading" }, `${name} `, make("b", {}, words))];
export const has_heads = (quantity) => letters_of(quantity).slice(0, -2).includes("h");
const key_head_words = () => data.key_heads === data.heads ? ""
  : `, which reads key head ${Math.floor(state.head * data.key_heads / data.heads)}`;
export const has_channels = (quantity) => letters_of(quantity).slice(0, -2).includes("c");
export const current_quantity = () => data.all.get(state.quantity);
export const place_words = (quantity = current_quantity()) => `layer ${state.layer}` +
  (!quantity || has_heads(quantity) ? `, head ${state.head}${key_head_words()}` : "") +
  (quantity && has_channels(quantity) ? `, channel ${state.c}` : "") + run_words();
// The title of a difference names its runs already.
export const run_words = () => state.run === "beside" ? `, ${run_named("beside").label}` : "";
// Several compared runs are steps of this run's training, the last of them its end.
const end_words = () => besides.length > 1 ? "end of training" : data.label;
// Parts without differences show this run instead.
export const single_run = () => state.run === "beside" ? "beside" : "this";
// The step of training whose gradients are shown. It begins where the loss fell most since the step before: at the end
// gradients are almost 0.
const loss_of = (run) => Number(run.facts.find(([name]) => name === "loss")[1]);
export const steepest = besides.slice(0, -1).map((run, k) => (k ? loss_of(besides[k - 1]) : loss_of(run)) - loss_of(run))
  .reduce((best, fall, k, falls) => best < 0 || fall > falls[best] ? k : best, -1);
export const has_moments = () => besides.length > 1 && state.run === "this";
export const moment = () => has_moments() ? besides[state.moment] : run_named(single_run());

// Says whether two numbers are equal.
export const check_line = (equal, verdict, words, title = null) => make("p", { class: "check", "data-equal": equal },
  make("b", { title }, equal ? "\u2713 " : "\u2717 ", verdict), words);

// ---- Controls
// Offers only the cursor's c if c is a row or a column and has no selector.
const channels_offered = (quantity) =>
  quantity && has_channels(quantity) ? unique(places_of(quantity.name).map(({ c }) => c)) : [state.c];
// An option is its value, or [value, words].
export const controls = {};
add_controls({
  layer: { text: "layer", options: () => counted(data.layers) },
  head: { text: "head", options: () => counted(data.heads) },
  quantity: { text: "quantity", options: () => current_view().quantities().map(({ name }) => name) },
  c: { text: "channel", options: () => channels_offered(current_quantity()) },
  part: { text: "of", options: () => ["value", "gradient", ...(current_view().both ? ["both"] : [])] },
  show: { text: "maps", options: () => [["all", "all"], ["one", "one, large"], ["parameters", "parameters"]] },
  side: { text: "the selected token as", options: () => [["query", "query: its row"], ["key", "key: its column"]] },
  layers: { text: "layers", options: () => ["all", ...counted(data.layers).map(String)] },
  run: { text: "shown", options: () => [["this", end_words()],
    ...(besides.length ? [["beside", run_named("beside").label], ["difference", "difference of both"]] : [])] },
  moment: { text: "gradients at", low: 0, high: besides.length - 1, words: () => moment().label },
  beside: { text: "step of training", low: 0, high: besides.length - 1,
    words: (index) => besides[index].label,
    then: () => state.run === "this" ? { run: "beside" } : {} },
  fit: { text: "colours fitted to each map", check: true },
  numbers: { text: "numbers in cells", check: true },
  digits: { text: "all digits", check: true },
});
const everywhere = ["learner", "run", ...(besides.length > 1 ? ["beside"] : []), "digits"];

function input_of(key, { options, check, low, high, most }, change) {
  if (most) return make("input", { type: "number", min: 0, max: most, step: 1,
    onchange: ({ target }) => change(clamped(Math.round(Number(target.value)) || 0, 0, most)) });
  if (options) return make("select", { onchange: ({ target }) => change(of_type(key, target.value)) });
  if (check) return make("input", { type: "checkbox", onchange: ({ target }) => change(target.checked) });
  return make("input", { type: "range", min: low, max: high, oninput: ({ target }) => change(Number(target.value)) });
}

// Adds a view's own controls. `words` describes a control's number, `then` may change another control.
export function add_controls(added) {
  for (const [key, control] of Object.entries(added)) {
    const { then } = control, change = (value) => update({ [key]: value, ...then?.() });
    control.input = dress(input_of(key, control, change), { "data-key": key, "data-focus": key });
    control.output = make("output", { "aria-live": "off" });
    control.label = make("label", {}, control.text, control.input, control.words ? control.output : "");
    controls[key] = control;
  }
}

const types = { number: Number, boolean: (word) => word === "true", string: String };
const of_type = (key, text) => types[typeof start[key]](text);
const used = (key) => everywhere.includes(key) && !current_view().without?.includes(key) || current_view().controls().includes(key);

// Shows the controls of the view. A value that they do not offer, from an old address or another view, is replaced; so
// is a quantity that nobody chose.
let opened = "";
function settle() {
  if (used("quantity") && ["", opened].includes(state.quantity)) state.quantity = opened = current_view().opens_on();
  for (const [key, { options, check, input, label, words, output }] of Object.entries(controls)) {
    label.hidden = !used(key);
    if (label.hidden) continue;
    const offered = (options?.() ?? []).map((option) => Array.isArray(option) ? option : [option, option]);
    if (options && !offered.some(([value]) => value === state[key])) state[key] = offered[0]?.[0] ?? start[key];
    input.replaceChildren(...offered.map(([value, text]) => make("option", { value }, text)));
    label.hidden = Boolean(options) && offered.length < 2;
    if (check) input.checked = state[key];
    else if (document.activeElement !== input || input.type !== "number") input.value = String(state[key]);
    if (!words) continue;
    output.textContent = words(state[key]);
    input.setAttribute("aria-valuetext", output.textContent);
  }
}

// ---- Address
// The address keeps what is shown, so that a view can be reloaded and sent: look.html#view=why&layer=1&head=2
export const told_besides = [];  // functions that return more of its [key, value] pairs
export function read_address(told = location.hash.slice(1)) {
  for (const [key, text] of new URLSearchParams(told)) {
    if (!Object.hasOwn(start, key)) continue;
    const value = of_type(key, text), whole = Number.isInteger(value) && value >= 0;
    if (typeof value !== "number" || whole) state[key] = value;
  }
  if (tokens.length) for (const key of ["i", "j"]) state[key] = Math.min(state[key], tokens.length - 1);
  if (!offered.some((view) => view.key === state.view)) state.view = start.view;
  if (!themes.includes(state.theme)) state.theme = start.theme;
  for (const key of ["beside", "moment"]) if (!besides[state[key]]) state[key] = start[key];
  if (!besides.length) state.run = start.run;
}

export function write_address() {
  const always = ["view", "layer", "head", "quantity", "i", "j"];
  const told = Object.entries(state).filter(([key, value]) => always.includes(key) || value !== start[key]);
  told.push(...told_besides.flatMap((more) => more()));
  // some viewers forbid this for local files, and nothing needs it
  try { history.replaceState(null, "", "#" + new URLSearchParams(told)); } catch { /* the address stays */ }
}

// ---- Skeleton
export const stage = make("div", { id: "stage", role: "tabpanel", "aria-labelledby": "", tabindex: -1 });
export const readout = make("div", { id: "readout", role: "status" });
const hint = make("p", { class: "hint" }), keys = note(), hatched = make("span", {}, " Hatched cells are masked.");
const own = make("div");  // a view's own part of the bar
const parts = make("nav", { class: "parts", "aria-label": "parts of this tab" });
const tabs = make("div", { class: "tabs", role: "tablist", "aria-label": "views" });
export const offered = [];  // all views
export const views = [];  // views for which the run has data
const themes = ["auto", "light", "dark"];
const theme_input = make("select", { "data-key": "theme", onchange: ({ target }) => update({ theme: target.value }) },
  ...themes.map((name) => make("option", { value: name }, name)));
const current_view = () => views.find((view) => view.key === state.view) ?? views[0];

export function settle_views() {
  views.splice(0, views.length, ...offered.filter((view) => view.wants()));
  tabs.replaceChildren(...groups().map((name) => button(name, `tab ${name}`, () => show_group(name),
    { role: "tab", id: `tab-${name}`, "aria-controls": "stage", onkeydown: on_keys(group_beside, (index) => {
      show_group(groups()[index]);
      tabs.children[index].focus();
    }) })));
}
const group_of = ({ group, title }) => group ?? title;
const groups = () => unique(views.map(group_of));
const shown_last = new Map();  // the view of each group
const show_group = (name) =>
  update({ view: shown_last.get(name) ?? views.find((view) => group_of(view) === name).key });

export function build() {
  const bar = make("div", { class: "controls" }, Object.values(controls).map(({ label }) => label));
  keys.append("Point at a cell to read it in every picture; click to select it. Keys " +
    "in a map: arrows move the cell, Home and End go to the ends of its row, PgUp and PgDn move ten rows.", hatched);
  document.getElementById("look").append(
    make("div", { class: "top" }, tabs, make("label", { class: "theme" }, "theme", theme_input)), parts, hint,
    make("div", { class: "bar" }, bar, own, readout), stage, keys);
}

function group_beside(key) {
  const at = groups().indexOf(group_of(current_view())), last = groups().length - 1;
  return { ArrowLeft: Math.max(0, at - 1), ArrowRight: Math.min(last, at + 1), Home: 0, End: last }[key];
}

function show_tabs() {
  const group = group_of(current_view()), chosen = document.getElementById(`tab-${group}`);
  for (const tab of tabs.children) dress(tab, { "aria-selected": tab === chosen, tabindex: tab === chosen ? 0 : -1 });
  const within = views.filter((view) => group_of(view) === group);
  shown_last.set(group, state.view);
  parts.replaceChildren(...within.length < 2 ? [] : within.map(({ key, title }) => button(title, `view ${key}`,
    () => update({ view: key }), { "aria-pressed": String(key === state.view) })));
  tabs.scrollLeft = chosen.offsetLeft - tabs.offsetLeft - (tabs.clientWidth - chosen.offsetWidth) / 2;  // on a phone
  stage.setAttribute("aria-labelledby", chosen.id);
  readout.parentElement.hidden = Boolean(current_view().bare);
  hint.textContent = current_view().hint;
}

// ---- Cursor
function set_hover(place) {
  const { hover } = pointer;
  if (place ? hover && Object.entries(place).every(([key, index]) => hover[key] === index) : !hover) return;
  pointer.hover = place;
  readout.setAttribute("aria-live", "off");  // a pointer would flood a screen reader; keys and clicks are announced
  show_cursor();
}

// On hover shows the place that `place_at` makes of the event, if any; on click selects it.
export const follow_pointer = (element, place_at, select = choose) => dress(element, {
  onpointermove: (event) => set_hover(place_at(event)),
  onpointerleave: () => set_hover(null),
  onclick: (event) => place_at(event) && select(place_at(event)),
});

// Selects a place. A head or a channel changes the picture too.
export function choose(place) {
  pointer.hover = null;
  if ("head" in place || "c" in place) return update(place);
  const focus = document.activeElement?.dataset.focus;
  Object.assign(state, place);
  readout.setAttribute("aria-live", "polite");
  for (const redraw of redrawn) redraw();
  let_keys_scroll();
  focus_again(focus);
  show_cursor();
  write_address();
}
// Focuses what was focused before it was drawn again.
export function focus_again(focus) {
  if (focus && document.activeElement.dataset.focus !== focus)
    document.querySelector(`[data-focus="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
}
// Regions that are wider than their room scroll by keys, too.
function let_keys_scroll() {
  for (const each of stage.querySelectorAll(".scroll, .frame")) {
    if (each.scrollWidth > each.clientWidth) dress(each, { tabindex: 0, role: "group", "aria-label": "scrolls sideways" });
  }
}

export function show_cursor() {
  const at = { ...state, ...pointer.hover };
  for (const follow of followers) follow(at);
  readout.replaceChildren(...current_view().readout(at));
  readout.tabIndex = readout.scrollHeight > readout.clientHeight ? 0 : -1;
}

export const system_dark = matchMedia("(prefers-color-scheme: dark)");
function show_theme() {
  const system_theme = system_dark.matches ? "dark" : "light";
  document.documentElement.dataset.theme = state.theme === "auto" ? system_theme : state.theme;
  theme_input.value = state.theme;
  read_theme();
}

// `of_view` returns a promise of data that a view lacks, or null.
export const missing = { of_view: () => null };
export function update(change = {}) {
  Object.assign(state, change);
  const awaited = missing.of_view(offered.find((view) => view.key === state.view) ?? current_view());
  if (awaited) return void awaited.then(() => update());
  state.view = current_view().key;
  pointer.hover = null;
  const focus = document.activeElement?.dataset.focus;
  show_theme();
  settle();
  show_tabs();
  followers.length = redrawn.length = 0;
  stage.style.minHeight = `${stage.offsetHeight}px`;  // the page keeps its length, and so the reader's place
  stage.replaceChildren();
  own.replaceChildren(...current_view().bar ?? []);
  current_view().draw();
  keys.hidden = !stage.querySelector("canvas[tabindex]");
  hatched.hidden = !stage.querySelector("canvas[data-hatched]");
  let_keys_scroll();
  stage.style.minHeight = "";
  show_cursor();
  focus_again(focus);
  write_address();
}

// Draws a part of a view for the selected cell, now, whenever another is selected, and when the returned function is called.
// `draw_part` returns a function that follows the cursor within it, or nothing.
export function of_selection(draw_part) {
  let follow = null;
  const redraw = () => follow = draw_part();
  redraw();
  redrawn.push(redraw);
  followers.push((at) => follow?.(at));
  return redraw;
}
