// The viewer around the heat maps: the selected row as curves and numbers, state, controls, keyboard and pointer.

// ---- DOM helpers
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value === "boolean") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const escaped = (text) => String(text).replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
const token_name = (tokens, index) => `${index} '${tokens[index]}'`;

// ---- Strips: one small chart per quantity over a shared key axis
const strip = { left: 70, right: 12, top: 20, height: 74 };

// `panels` of one layer and head; returns what follow() needs to move the cursor line without drawing again.
function draw_strips(container, shown_maps, row, width) {
  const step = (width - strip.left - strip.right) / column_count;
  const x_of = (column) => strip.left + (column + 0.5) * step;
  container.replaceChildren();
  const marks = shown_maps.map((map, index) => {
    const last = index === shown_maps.length - 1, total = strip.top + strip.height + (last ? 40 : 8);
    container.insertAdjacentHTML("beforeend", strip_svg(map, row, { width, total, step, x_of, last }));
    const svg = container.lastElementChild;
    return { map, line: svg.querySelector(".follow"), now: svg.querySelector(".now") };
  });
  return { marks, x_of, step };
}

function strip_svg(map, row, { width, total, step, x_of, last }) {
  const points = [];
  for (let column = 0; column < column_count; ++column) points.push(value_at(map, row, column));
  const finite = points.filter(Number.isFinite);
  const low = Math.min(0, ...finite), top_value = Math.max(0, ...finite), high = top_value > low ? top_value : low + 1;
  const bottom = strip.top + strip.height, y_of = (value) => bottom - (value - low) / (high - low) * strip.height;
  const ticks = unique([low, 0, high].filter((tick) => tick === 0 || Math.abs(tick) > 0.12 * (high - low)));
  const spoken = `${escaped(map.name)} of query row ${row} over the keys`;
  let svg = `<svg viewBox="0 0 ${width} ${total}" role="img" aria-label="${spoken}">`;
  for (const tick of ticks) {
    svg += `<line class="grid" x1="${strip.left}" x2="${width - strip.right}" y1="${y_of(tick)}" y2="${y_of(tick)}"/>`;
    svg += `<text class="tick end" x="${strip.left - 6}" y="${y_of(tick) + 4}">${format(tick, 3)}</text>`;
  }
  svg += `<line class="follow" y1="${strip.top - 4}" y2="${bottom}"/>` + trace(points, x_of, y_of);
  svg += `<text x="${strip.left}" y="12" style="font-weight:600">${escaped(map.name)}</text>`;
  svg += `<text class="now" y="12"></text>`;
  return svg + (last ? key_axis(x_of, bottom, step) : "") + "</svg>";
}

// Line and dots, broken where cells are masked; a stem to zero lets single dots be read too.
function trace(points, x_of, y_of) {
  let path = "", dots = "", stems = "", drawing = false;
  points.forEach((value, column) => {
    if (!Number.isFinite(value)) {
      drawing = false;
      return;
    }
    const x = x_of(column).toFixed(1), y = y_of(value).toFixed(1);
    path += (drawing ? "L" : "M") + x + " " + y;
    stems += `M${x} ${y_of(0).toFixed(1)}V${y}`;
    dots += `<circle class="dot" cx="${x}" cy="${y}" r="2.2"/>`;
    drawing = true;
  });
  return `<path class="stem" d="${stems}"/><path class="trace" d="${path}"/>${dots}`;
}

// Tokens as dense as they fit, indices at multiples of five.
function key_axis(x_of, bottom, step) {
  const every = Math.max(1, Math.ceil((longest(column_tokens) * 6.8 + 1) / step));
  const numbered = Math.ceil(26 / step / 5) * 5;
  let svg = "";
  for (let column = 0; column < column_count; column += every) {
    const token = escaped(short(column_tokens[column]));
    svg += `<text class="token middle" x="${x_of(column)}" y="${bottom + 16}">${token}</text>`;
  }
  for (let column = 0; column < column_count; column += numbered) {
    svg += `<text class="tick middle" x="${x_of(column)}" y="${bottom + 31}">${column}</text>`;
  }
  return svg + `<text class="tick end" x="${strip.left - 6}" y="${bottom + 31}">key j</text>`;
}

// Moves the cursor line to `column` and writes the value beside it, on the side where there is room.
function follow(strips, row, column, width) {
  const x = strips.x_of(column), before = x > width * 0.75;
  for (const { map, line, now } of strips.marks) {
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    now.setAttribute("x", before ? x - 4 : Math.max(x + 4, strip.left + 12 + 8 * map.name.length));
    now.setAttribute("class", before ? "now end" : "now");
    now.textContent = format(value_at(map, row, column));
  }
}

// ---- List: the same row as numbers
function draw_list(container, shown_maps, row, choose) {
  const head = make("tr", {}, make("th", { class: "n", scope: "col" }, "key j"), make("th", { scope: "col" }, "token"),
    ...shown_maps.map((map) => make("th", { class: "n", scope: "col" }, map.name)));
  const body = make("tbody");
  for (let column = 0; column < column_count; ++column) {
    const values = shown_maps.map((map) => value_at(map, row, column));
    if (values.every(Number.isNaN)) continue;
    body.append(make("tr", { "data-column": column, onclick: () => choose(column) },
      make("td", { class: "n" }, String(column)), make("td", { class: "token" }, column_tokens[column]),
      ...values.map((value) => make("td", { class: "n", title: String(value) }, format(value)))));
  }
  container.replaceChildren(make("table", {}, make("thead", {}, head), body));
}

// Marks the cursor's line of the list and scrolls the list, not the page, to it.
function follow_list(container, column) {
  for (const line of container.querySelectorAll("tr[aria-current]")) line.removeAttribute("aria-current");
  const line = container.querySelector(`tr[data-column="${column}"]`);
  if (!line) return;
  line.setAttribute("aria-current", "true");
  const head = container.querySelector("thead").offsetHeight;
  if (line.offsetTop < container.scrollTop + head) container.scrollTop = line.offsetTop - head;
  const below = line.offsetTop + line.offsetHeight - container.clientHeight;
  if (below > container.scrollTop) container.scrollTop = below;
}

// ---- State
// row and column are the selected cell; hover is the cell under the pointer and only shows while it is there.
const state = {
  view: names.length > 1 ? "compare" : "one", name: names[0], layer: layers[0], head: heads[0], fit: false,
  numbers: false, cell: 0, row: row_count - 1, column: 0, theme: "auto",
};
let hover = null, panels = [], small = [], strips = null, strips_width = 0;

const cursor = () => hover || { row: state.row, column: state.column };
const current_maps = () => names.map((name) => find_map(name, state.layer, state.head)).filter(Boolean);
const place = () => `layer ${state.layer}, head ${state.head}`;

// The address keeps what is shown, so that a view can be reloaded and sent: report.html#layer=1&head=2&view=one
function read_address() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const [key, allowed] of [["view", ["compare", "one"]], ["name", names], ["theme", ["auto", "light", "dark"]]]) {
    if (allowed.includes(given.get(key))) state[key] = given.get(key);
  }
  for (const [key, allowed] of [["layer", layers], ["head", heads]]) {
    if (given.has(key) && allowed.includes(Number(given.get(key)))) state[key] = Number(given.get(key));
  }
  for (const [key, count] of [["row", row_count], ["column", column_count]]) {
    const index = Number.parseInt(given.get(key), 10);
    if (index >= 0 && index < count) state[key] = index;
  }
  state.fit = given.get("fit") === "true";
  state.numbers = given.get("numbers") === "true";
}

function write_address() {
  const { view, name, layer, head, row, column, fit, numbers, theme: chosen } = state;
  const address = new URLSearchParams({ view, name, layer, head, row, column, fit, numbers, theme: chosen });
  // some viewers forbid it for local files; nothing depends on it
  try { history.replaceState(null, "", "#" + address); } catch { /* the address stays */ }
}

// ---- Skeleton
const viewer = document.getElementById("viewer");
const option = (value, text) => make("option", { value }, text);
const select = (key, options, changed) =>
  make("select", { "data-key": key, onchange: (event) => changed(event.target.value) }, ...options);

const controls = {
  layer: select("layer", layers.map((layer) => option(layer, layer)), (value) => update({ layer: Number(value) })),
  head: select("head", heads.map((head) => option(head, head)), (value) => update({ head: Number(value) })),
  view: select("view", [option("compare", "all quantities"), option("one", "one quantity, large")],
    (value) => update({ view: value })),
  name: select("name", names.map((name) => option(name, name)), (value) => update({ name: value })),
  fit: select("fit", [option("false", "same for all heads"), option("true", "fitted to each map")],
    (value) => update({ fit: value === "true" })),
  numbers: make("input", { type: "checkbox", onchange: (event) => update({ numbers: event.target.checked }) }),
  cell: make("input", { type: "range", min: 3, max: 44, step: 1,
    oninput: (event) => update({ cell: Number(event.target.value) }) }),
};
const labelled = (text, control) => make("label", {}, text, control);
const only_large = [labelled("numbers in cells", controls.numbers), labelled("cell size", controls.cell)];

const readout = make("div", { id: "readout", role: "status" });
const panel_grid = make("div", { class: "panels" });
const multiples_section = make("section", { "aria-label": "all layers and heads" });
const multiples_title = make("h3"), multiples = make("div", { class: "multiples" });
const row_title = make("h3"), strip_area = make("div", { class: "strips" });
const list_area = make("div", { class: "list", tabindex: 0, "aria-label": "values of the selected query row" });

function build() {
  const help = make("p", { class: "note" });
  help.innerHTML = "Rows are queries i, columns are keys j; hatched cells are masked. Point at a cell to read it in " +
    "every map; click to select it. With a map focused: <kbd>\u2190</kbd> <kbd>\u2191</kbd> <kbd>\u2192</kbd> " +
    "<kbd>\u2193</kbd> move the selected cell, " +
    "<kbd>Home</kbd> <kbd>End</kbd> go to the ends of the row, <kbd>PgUp</kbd> <kbd>PgDn</kbd> move ten rows.";
  const bar = make("div", { class: "controls" }, labelled("layer", controls.layer), labelled("head", controls.head),
    labelled("show", controls.view), labelled("quantity", controls.name),
    labelled("colour range", controls.fit), ...only_large);
  multiples_section.append(multiples_title, multiples);
  multiples_section.hidden = layers.length * heads.length === 1;
  viewer.append(help, make("div", { class: "bar" }, bar, readout), panel_grid,
    make("section", { "aria-label": "selected row" }, row_title,
      make("div", { class: "row" }, strip_area, list_area)), multiples_section);
  const themes = ["auto", "light", "dark"].map((name) => option(name, name));
  const theme_control = select("theme", themes, (value) => update({ theme: value }));
  document.getElementById("theme").append(labelled("theme", theme_control));
  strip_area.addEventListener("pointermove", strip_hover);
  strip_area.addEventListener("pointerleave", () => set_hover(null));
  strip_area.addEventListener("click", () => hover && choose(hover.row, hover.column));
}

// ---- Panels
function make_panel(name) {
  const map = find_map(name, state.layer, state.head);
  const figure = make("figure", { class: "panel", style: "margin:0" });
  const value = make("output", { "aria-live": "off" });
  figure.append(make("header", {}, make("h4", {}, name), value));
  if (!map) {
    figure.append(make("figcaption", {}, `not recorded for ${place()}`), make("div"));
    return { figure, name };
  }
  const unit = unit_of(map), large = state.numbers && state.view === "one";
  const note = large && unit ? `; numbers in units of 1e${unit}` : "";
  const [low, high] = map.extremes.map((end) => format(end));
  const range = make("span", { class: "range" }, `min ${low}, max ${high}${note}`);
  const canvas = make("canvas", { tabindex: 0, role: "application", "aria-label":
    `${name}, ${place()}: ${row_count} queries by ${column_count} keys; arrow keys move the cell cursor` });
  figure.append(make("figcaption", {}, map.caption, make("br"), range), make("div", { class: "frame" }, canvas));
  const panel = { figure, canvas, name, value, map };
  canvas.addEventListener("pointermove", (event) => set_hover(cell_at(panel, event)));
  canvas.addEventListener("pointerleave", () => set_hover(null));
  canvas.addEventListener("click", (event) => {
    const cell = cell_at(panel, event);
    if (cell) choose(cell.row, cell.column);
  });
  canvas.addEventListener("keydown", press);
  return panel;
}

// Three panels abreast where that leaves cells large enough to label, then two, then one.
function draw_panels() {
  const focused = panels.findIndex((panel) => panel.canvas === document.activeElement);
  const chosen = state.view === "compare" ? names : [state.name], space = viewer.clientWidth;
  const across = state.view === "one" ? 1 : Math.min(chosen.length, space >= 1150 ? 3 : space >= 700 ? 2 : 1);
  panel_grid.style.setProperty("--across", across);
  let cell = fitting_cell(Math.floor((space - 16 * (across - 1)) / across), true);
  if (state.view === "one") {
    cell = state.cell || Math.max(Math.min(cell, 24), state.numbers ? 30 : 0);
    // browsers bound the size of a canvas
    cell = Math.min(cell, 8192 / (devicePixelRatio || 1) / Math.max(row_count, column_count));
    controls.cell.value = cell;
  }
  panels = chosen.map(make_panel);
  panel_grid.replaceChildren(...panels.map((panel) => panel.figure));
  for (const panel of panels.filter((each) => each.canvas)) {
    paint_base(panel, panel.map, geometry(cell, true), state.fit, state.numbers && state.view === "one" && cell >= 16);
  }
  if (focused >= 0) panels[Math.min(focused, panels.length - 1)].canvas?.focus();
}

// All heads of one quantity, small: where to look next. Layers go down, heads across.
function draw_multiples() {
  if (multiples_section.hidden) return;
  multiples_title.textContent = `${state.name} in all layers and heads`;
  const focused = small.findIndex((panel) => panel.button === document.activeElement);
  const space = Math.floor((viewer.clientWidth - 6 - 12 * (heads.length - 1)) / heads.length) - 14;
  const exact = Math.min(360, Math.max(60, space)) / column_count, cell = exact >= 3 ? Math.floor(exact) : exact;
  multiples.style.gridTemplateColumns = `repeat(${heads.length}, max-content)`;
  small = layers.flatMap((layer) => heads.map((head) => make_small(layer, head, cell)));
  multiples.replaceChildren(...small.map((panel) => panel.button));
  if (focused >= 0) small[focused].button.focus();
}

function make_small(layer, head, cell) {
  const map = find_map(state.name, layer, head), selected = layer === state.layer && head === state.head;
  const value = make("span", { class: "what" });
  const button = make("button",
    { type: "button", "aria-pressed": String(selected), onclick: () => update({ layer, head }) },
    make("span", { class: "where" }, `layer ${layer}, head ${head}`), value);
  const panel = { button, value, map };
  if (!map) {
    value.textContent = "not recorded";
    return panel;
  }
  panel.canvas = make("canvas", {});
  button.append(panel.canvas);
  value.style.maxWidth = cell * column_count + "px";
  paint_base(panel, map, geometry(cell, false), state.fit, false);
  return panel;
}

// ---- Cursor
function set_hover(cell) {
  if (cell ? hover && hover.row === cell.row && hover.column === cell.column : !hover) return;
  hover = cell;
  readout.setAttribute("aria-live", "off");  // a pointer would flood a screen reader; keys and clicks do announce
  show_cursor();
}

function choose(row, column) {
  const same_row = row === state.row;
  Object.assign(state, { row, column });
  readout.setAttribute("aria-live", "polite");
  if (!same_row) draw_row();
  show_cursor();
  write_address();
}

// Keys move the selected cell, also into masked ones: what is masked is worth knowing too.
function press(event) {
  const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
                  PageUp: [-10, 0], PageDown: [10, 0], Home: [0, -column_count], End: [0, column_count] };
  if (!moves[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  hover = null;
  const [down, right] = moves[event.key];
  const row = Math.min(row_count - 1, Math.max(0, state.row + down)), last = last_shown(row);
  const column = event.key === "End" ? last : Math.min(column_count - 1, Math.max(0, state.column + right));
  choose(row, column);
}

// End goes to the row's last key that is not masked in every map: the diagonal of a causal model.
function last_shown(row) {
  for (let column = column_count - 1; column > 0; --column) {
    if (current_maps().some((map) => !Number.isNaN(value_at(map, row, column)))) return column;
  }
  return 0;
}

// One cursor for everything: each panel, each small map, the readout, the curves and the list.
function show_cursor() {
  const { row, column } = cursor();
  const values = current_maps().map((map) => [map.name, format(value_at(map, row, column))]);
  for (const panel of panels.filter((each) => each.canvas)) {
    paint_cursor(panel, row, column);
    panel.value.textContent = format(value_at(panel.map, row, column));
  }
  for (const panel of small.filter((each) => each.canvas)) {
    paint_cursor(panel, row, column);
    const extent = panel.map.extremes.map((end) => format(end, 3)).join(" \u2026 ");
    panel.value.textContent = `${format(value_at(panel.map, row, column))} in ${extent}`;
  }
  const where = `${place()}, query ${token_name(row_tokens, row)}, key ${token_name(column_tokens, column)}:`;
  readout.replaceChildren(where, ...values.flatMap(([name, value], index) => [" ",
    make("span", {}, name + " ", make("b", {}, value), index + 1 < values.length ? "," : "")]));
  if (strips) follow(strips, state.row, column, strips_width);
  follow_list(list_area, column);
}

// ---- Selected row
function draw_row() {
  row_title.textContent = `Query row ${token_name(row_tokens, state.row)} of ${place()}`;
  draw_list(list_area, current_maps(), state.row, (column) => choose(state.row, column));
  strips_width = Math.max(320, Math.floor(strip_area.clientWidth));
  strips = draw_strips(strip_area, current_maps(), state.row, strips_width);
}

function strip_hover(event) {
  const box = strip_area.getBoundingClientRect();
  const column = Math.floor(((event.clientX - box.left) * strips_width / box.width - strip.left) / strips.step);
  set_hover(column >= 0 && column < column_count ? { row: state.row, column } : null);
}

// ---- Everything
const system_dark = matchMedia("(prefers-color-scheme: dark)");
function update(change = {}) {
  Object.assign(state, change);
  hover = null;
  const system_theme = system_dark.matches ? "dark" : "light";
  document.documentElement.dataset.theme = state.theme === "auto" ? system_theme : state.theme;
  document.querySelector('[data-key="theme"]').value = state.theme;
  for (const key of ["layer", "head", "view", "name", "fit"]) controls[key].value = String(state[key]);
  controls.numbers.checked = state.numbers;
  for (const label of only_large) label.hidden = state.view !== "one";
  controls.view.parentElement.hidden = names.length === 1;
  read_theme();
  draw_panels();
  draw_row();
  draw_multiples();
  show_cursor();
  write_address();
}

// Starts at the row's strongest gradient where there is one to see, else at its largest value.
function start_column() {
  const map = current_maps().find((each) => each.scale === "diverging") || current_maps()[0];
  let best = 0;
  for (let column = 0; map && column < column_count; ++column) {
    if (Math.abs(value_at(map, state.row, column)) > Math.abs(value_at(map, state.row, best))) best = column;
  }
  return best;
}

state.column = start_column();
read_address();
build();
update();
system_dark.addEventListener("change", () => update());
let last_width = viewer.clientWidth;
addEventListener("resize", () => {
  if (viewer.clientWidth === last_width) return;
  last_width = viewer.clientWidth;
  update();
});
