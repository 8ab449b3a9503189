// View: the step as a graph of named places, from the input to the loss: the gradient that reached each, and, as a
// film, the order.
import {
  button, draw, dress, folded, make, name_cell, note, on_keys, player, right_cell, svg_text, table_of
} from "./elements.js";
import { start, state } from "./state.js";
import { data, run_shown } from "./data.js";
import { number_cell, reading, readout, show_cursor, shown, stage, write_address } from "./frame.js";
import { box, draw_flows, draw_place, graph_shown, layout, pictured, place_title } from "./graph.js";

// One frame per place, in the order of backward; -1 is the whole. The film never starts by itself.
const film = { player: null, picture: null, pointed: null };
const frames_of = ({ places }) =>
  places.filter(({ path }) => path).sort((one, other) => one.order - other.order);

function show_frame(frame) {
  const { picture } = film, frames = frames_of(picture);
  state.film = frame < 0 ? start.film : Math.min(frame, frames.length - 1);
  const now = frames[state.film], lit = new Set(now ? frames.slice(0, state.film + 1) : picture.places);
  for (const place of picture.places) {
    place.element.classList.toggle("dim", !lit.has(place));
    place.element.classList.toggle("now", place === now);
  }
  for (const { from, to, element } of picture.edges) {
    element.classList.toggle("dim", !(lit.has(from) && lit.has(to)));
    element.classList.toggle("now", now !== undefined && to === now && lit.has(from));
  }
  film.slider.value = state.film;
  film.pointed = null;
  readout.setAttribute("aria-live", film.player.runs() ? "off" : "polite");
  show_cursor();
  write_address();
}

function next_frame(begins) {
  const last = frames_of(film.picture).length - 1, over = state.film < 0 || state.film >= last;
  if (over && !begins) return false;
  if (over || !begins) show_frame(over ? 0 : after());
}

function film_bar() {
  const still = (words, frame_of) => button(words, `film ${words}`, () => stop_at(frame_of()));
  film.player = player("film", "film play", 700, next_frame);
  film.slider = make("input", { type: "range", min: -1, max: frames_of(film.picture).length - 1, "data-focus": "film",
    "aria-label": "place of the film; the first is the whole",
    oninput: ({ target }) => stop_at(Number(target.value)) });
  return make("p", { class: "film" }, film.player.button, still("back", before), still("forward", after),
    still("whole", () => -1), film.slider);
}

const before = () => Math.max(0, state.film - 1);
const after = () => state.film + 1;
function stop_at(frame) {
  film.player.stop();
  show_frame(frame);
}
const press_film = on_keys((key) =>
  ({ ArrowRight: after(), ArrowLeft: before(), Home: 0, End: Infinity, Escape: -1 })[key], stop_at);

function graph_tables({ nodes, edges }) {
  const code_cell = (words) => make("td", {}, make("code", {}, words));
  const node_line = ({ order, id, kind, layer, norm, path }) => make("tr", { class: path ? "" : "lost" },
    right_cell(path ? order : "\u2013"), name_cell(make("code", {}, id)), make("td", {}, kind),
    right_cell(layer ?? "\u2013"), path ? number_cell(norm) : right_cell("no path"));
  return dress(folded("as tables", () => [
    table_of(["order", "place", "kind", "layer", "norm of the gradient"],
      [...nodes].sort((one, other) => one.order - other.order).map(node_line), { class: "nodes" }),
    table_of(["from", "to", "norm of its gradient"],
      edges.map(({ from, to, norm }) => [code_cell(from), code_cell(to), number_cell(norm)]), { class: "edges-table" }),
  ]), { class: "behind graph-tables" });
}

function draw_graph() {
  film.player?.stop();
  film.pointed = null;
  const graph = graph_shown(), container = make("div", { class: `graph scroll${state.flows ? "" : " without-parameters"}`, tabindex: 0, role: "application",
    "data-focus": "graph", onkeydown: press_film,
    "aria-label": "graph of the step; left and right step through the order of backward, Escape shows the whole" });
  film.picture = graph && pictured(graph);
  if (!graph) return stage.append(note(`No graph recorded for ${run_shown().label}.`));
  stage.append(film_bar(), container, note("The input is left, the loss right: the gradient " +
    "flows from right to left and upwards. Widths follow the logarithm of its norm. Norms of folded places are the root " +
    "of the sum of squares. Dashed red places have no path: the loss does not depend on them, or they are frozen. " +
    "Arrow keys in the picture step through the film, Escape shows the whole."),
    graph_tables(graph));
  const { titles, width, least, height } = layout(film.picture, container.clientWidth);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, style: `min-width: ${least}px`, role: "group",
    "aria-label": "graph of the step" });
  svg.append(...titles.map(({ y, text }) => svg_text("tick", box.left, y, text)),
    ...draw_flows(film.picture, point_at), ...film.picture.places.map((place) => draw_place(place, point_at)));
  container.append(svg);
  show_frame(state.film);
}

function point_at(pointed) {
  film.pointed = pointed;
  const near = ({ from, to }, edge) => pointed && (pointed.edge === edge || [from, to].includes(pointed.place));
  for (const edge of film.picture.edges) edge.element.classList.toggle("near", Boolean(near(edge, edge)));
  readout.setAttribute("aria-live", "off");
  show_cursor();
}

const named_norm = (name, norm) => reading(name, shown(norm));
function place_readout(place, edges) {
  if (!place.path) return [`${place_title(place)}: `, make("b", {}, "no path")];
  const from = edges.filter(({ to }) => to === place);
  return [`${place.members.length === 1 ? place.members[0].id : place.name}:`, ...named_norm("norm", place.norm),
    ...(from.length ? ["; of it from"] : []), ...from.flatMap((edge) => named_norm(edge.from.name, edge.norm))];
}

function graph_readout() {
  if (!film.picture) return [];
  const { places, edges } = film.picture, frames = frames_of(film.picture), lost = places.filter(({ path }) => !path);
  const { place, edge } = film.pointed ?? {};
  if (edge) return [`from ${edge.from.name} to ${edge.to.name}:`, ...named_norm("norm", edge.norm)];
  if (place) return place_readout(place, edges);
  const now = frames[state.film];
  if (now) return [`step ${state.film + 1} of ${frames.length}: `, ...place_readout(now, edges)];
  return [`${places.length} places, ${edges.length} edges, ${lost.length} without a path`];
}

export const graph_view = {
  key: "graph", title: "Graph", wants: () => Boolean(data.graph),
  hint: "Look for a thin edge after a wide edge: there the gradient is lost on its way.",
  controls: () => ["layers", "flows"], without: ["beside"],
  readout: graph_readout,
  draw: draw_graph,
};
