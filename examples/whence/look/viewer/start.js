// The views that this run has something for, and the start of the page.
import { start, state } from "./state.js";
import { data, key_of, letters_of, quantities } from "./data.js";
import { build, read_address, stage, system_dark, update, views } from "./frame.js";
import { cell_of } from "./map.js";
import { row_of } from "./curves.js";
import { quantities_view, sheets_of_row } from "./quantities.js";
import { why_view } from "./why.js";
import { routes_view } from "./routes.js";
import { reading_view } from "./reading.js";
import { lens_view } from "./lens.js";
import { graph_view } from "./film.js";
import { loupe_view } from "./loupe.js";
import { edits_view } from "./edits.js";
import { overview_view, start_of_windows } from "./long.js";
import { offer_saving } from "./save.js";

views.push(...[overview_view, quantities_view, why_view, routes_view, reading_view, lens_view, graph_view, loupe_view,
  edits_view].filter((view) => view.wants()));

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
offer_saving();
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
