// The views that this run has something for, and the start of the page.

const views = data.overview ? [overview_view, ...(data.edits.length ? [edits_view] : [])] : [
  quantities_view,
  ...(reasoned().length ? [why_view] : []),
  ...(data.routes.length ? [routes_view] : []),
  ...(readable().length ? [reading_view] : []),
  ...(lens_quantities().length ? [lens_view] : []),
  ...(data.graph ? [graph_view] : []),
  ...(has_loupe() ? [loupe_view] : []),
  ...(data.edits.length ? [edits_view] : []),
];

// Starts at the row's strongest gradient where there is one to see, else at its largest value.
function start_column() {
  const sheets = sheets_of_row(), sheet = sheets.find((each) => each.kind === "gradient") ?? sheets[0];
  if (!sheet) return {};
  const row = Math.min(cell_of(sheet, state).row, sheet.rows - 1);
  const sizes = row_of(sheet, row).map((value) => Math.abs(value) || 0);
  return { [key_of(sheet.column_axis)]: sizes.indexOf(Math.max(...sizes)) };
}

const pairs = quantities.find((quantity) => letters_of(quantity).slice(-2).join(" ") === "i j") ?? quantities[0];
state.quantity = start.quantity = pairs.name;
state.view = start.view = views[0].key;
Object.assign(state, data.overview ? start_of_windows() : start_column());
read_address();
build();
update();
system_dark.addEventListener("change", () => update());
addEventListener("hashchange", () => {
  read_address();
  update();
});
let last_width = stage.clientWidth;
addEventListener("resize", () => {
  if (stage.clientWidth === last_width) return;
  last_width = stage.clientWidth;
  update();
});
