// The views for which this run has data, and the start of the page.
import { start, state } from "./state.js";
import { besides, data, letters_of, places_of, quantities, sheet_of } from "./data.js";
import { source } from "./source.js";
import { build, offered, read_address, settle_views, stage, steepest, system_dark, update, views } from "./frame.js";
import { place_of } from "./map.js";
import { quantities_view } from "./quantities.js";
import { why_view } from "./why.js";
import { paths_view } from "./paths.js";
import { text_view } from "./text.js";
import { heads_view } from "./heads.js";
import { graph_view } from "./graph.js";
import { to_knob } from "./knob.js";
import { story_view } from "./story.js";
import { edits_view } from "./edits.js";
import { logit_view } from "./logit.js";
import { patch_view } from "./patch.js";
import { lessons_view } from "./lessons.js";
import { offer_saving } from "./save.js";

offered.push(story_view, quantities_view, text_view, heads_view, why_view, paths_view, edits_view, logit_view, patch_view,
  graph_view, lessons_view);

// Starts at the strongest gradient of the first quantity of pairs, in all layers and heads; without one, at the largest value.
function strongest_cell(pairs) {
  let best = { size: 0 };
  for (const place of places_of(pairs.name)) {
    const sheet = sheet_of(pairs.name, "gradient", place) ?? sheet_of(pairs.name, "value", place);
    sheet.cells.forEach((value, cell) => {
      if (!sheet.hidden?.[cell] && Math.abs(value) > best.size) best = { size: Math.abs(value), place, sheet, cell };
    });
  }
  const { place, sheet, cell } = best, column = sheet && cell % sheet.columns;
  return sheet ? { ...place, ...place_of(sheet, { row: (cell - column) / sheet.columns, column }) } : {};
}

function begin_at_run() {
  const pairs = quantities.find((quantity) => letters_of(quantity).slice(-2).join(" ") === "i j") ?? quantities[0];
  state.beside = start.beside = Math.max(0, besides.length - 1);  // a training's end, which is this run too
  state.moment = start.moment = Math.max(0, steepest);
  Object.assign(state, data.knob ? to_knob() : strongest_cell(pairs));
}

settle_views();
state.view = start.view = views[0].key;
if (!source.has_engine) begin_at_run();
read_address();
build();
update();
offer_saving();
system_dark.addEventListener("change", () => update());
addEventListener("hashchange", () => {
  read_address();
  if (source.begin) source.begin();
  else update();
});
source.begin?.(begin_at_run);  // an engine shows nothing before
let last_width = stage.clientWidth;
addEventListener("resize", () => {
  if (stage.clientWidth === last_width) return;
  last_width = stage.clientWidth;
  update();
});
