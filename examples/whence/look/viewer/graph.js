// View: the step as a graph of named places, from the input to the loss, with the gradient that reached each; folded where
// it is large.
import {
  clamped, counted, draw, dress, folded, make, name_cell, norm_of, note, on_button_keys, right_cell, sum_of, svg_text, table_of
} from "./elements.js";
import { state } from "./state.js";
import { data, run_shown } from "./data.js";
import { number_cell, reading, readout, show_cursor, shown, stage, update } from "./frame.js";
import { end_of } from "./curves.js";

// ---- Folding
const graph_shown = () => run_shown().graph ?? null;
const layer_key = (layer) => layer === null ? "-" : String(layer);
const unfolded = () => state.unfolded.split(" ").filter(Boolean);

// Returns a node's place in the picture: itself, its module's parameters or those of its layer, or its layer if another
// is looked at. Columns and lanes are from look/graph.cpp.
function drawn_as({ box, group, layer }, boxes) {
  const key = layer_key(layer);
  if (layer !== null && state.layers !== "all" && state.layers !== key) {
    return { id: `layer ${key}`, name: `layer ${key}`, layer, kind: "folded", column: 0, lane: 0 };
  }
  const place = boxes[unfolded().includes(key) ? box : group];
  return place.kind === "parameter" ? { ...place, toggles: key } : { ...place };
}

// The norm of folded nodes is the root of the sum of squares.
function pictured(graph) {
  const places = new Map(), at = new Map(), edges = new Map();
  for (const node of graph.nodes) {
    const place = drawn_as(node, graph.boxes);
    if (!places.has(place.id)) places.set(place.id, { ...place, members: [] });
    places.get(place.id).members.push(node);
    at.set(node.id, place.id);
  }
  for (const { from, to, norm } of graph.edges) {
    const ends = [at.get(from), at.get(to)], key = ends.join("\n");
    if (ends.includes(undefined) || ends[0] === ends[1]) continue;
    if (!edges.has(key)) edges.set(key, { from: places.get(ends[0]), to: places.get(ends[1]), norms: [] });
    edges.get(key).norms.push(norm);
  }
  for (const place of places.values()) {
    const { members } = place;
    Object.assign(place, { path: members.some(({ path }) => path), norm: norm_of(members.map(({ norm }) => norm)) });
    if (members.length > 1 || place.toggles !== undefined) place.name += ` (${members.length})`;
  }
  return { places: [...places.values()],
           edges: [...edges.values()].map((edge) => ({ ...edge, norm: norm_of(edge.norms) })) };
}

// ---- Places in the picture
const box = { height: 38, lane: 54, gap: 16, top: 24, left: 8 };
const letters = 7.3;  // the width of a letter in bold
const wanted_width = ({ name, path, norm }) =>
  clamped(16 + letters * Math.max(name.length, path ? shown(norm).length : 7), 70, 190);
const is_leaf = ({ kind }) => kind === "parameter";

// Rows are layers, first nodes of no layer, last the loss. Returns their titles and the size of all.
function layout({ places }, space) {
  const columns = counted(1 + Math.max(...places.map(({ column }) => column)));
  const wanted = columns.map((k) => Math.max(70, ...places.filter(({ column }) => column === k).map(wanted_width)));
  const room = space - 2 * box.left - box.gap * (columns.length - 1), share = clamped(room / sum_of(wanted), 0, 1);
  // the picture scrolls where names would be cut to nothing
  const widths = share < 0.6 ? wanted : wanted.map((each) => Math.max(70, each * share)), needed = sum_of(widths);
  const step = box.gap + Math.max(0, room - needed) / Math.max(1, columns.length - 1);
  const least = needed + 2 * box.left + box.gap * (columns.length - 1), width = Math.max(space, least);
  const left = columns.map((k) => box.left + sum_of(widths.slice(0, k)) + k * step);
  const groups = [(each) => each.layer === null && each.kind !== "loss",
    ...counted(data.layers).map((layer) => (each) => each.layer === layer), (each) => each.kind === "loss"];
  let top = 0;
  const titles = groups.map((belongs) => places.filter(belongs)).filter((row) => row.length).map((row) => {
    for (const place of row) {
      place.wide = Math.min(widths[place.column], wanted_width(place));
      place.x = left[place.column];
      place.y = top + box.top + place.lane * box.lane;
    }
    const [{ kind, layer }] = row, text = kind === "loss" ? "" : layer === null ? "of no layer" : `layer ${layer}`;
    const title = { y: top + 14, text };
    top += box.top + (1 + Math.max(...row.map(({ lane }) => lane))) * box.lane;
    return title;
  });
  return { titles, width, least, height: top };
}

// Edges go sideways within a layer, up and down between layers and from parameters.
function edge_path({ from, to }, places) {
  const middle = box.height / 2, { wide } = to;
  if (from.layer === to.layer && !is_leaf(from) && !is_leaf(to) && to.x < from.x) {
    const [x0, x1, y0, y1] = [to.x + wide, from.x, to.y + middle, from.y + middle], bend = (x0 + x1) / 2;
    return `M${x1} ${y1}C${bend} ${y1} ${bend} ${y0} ${x0} ${y0}`;
  }
  const below = from.y >= to.y, y0 = to.y + (below ? box.height : 0), y1 = from.y + (below ? 0 : box.height);
  const [x0, x1, bend] = [to.x + wide / 2, from.x + from.wide / 2, (y0 + y1) / 2];
  const between = ({ x, y }) => x === to.x && y > Math.min(to.y, from.y) && y < Math.max(to.y, from.y);
  const aside = x0 === x1 && places.some(between) ? (x0 > wide ? -0.8 : 0.8) * wide : 0;
  return `M${x1} ${y1}C${x1 + aside} ${bend} ${x0 + aside} ${bend} ${x0} ${y0}`;
}

function draw_flows({ edges, places }, point) {
  const logs = edges.filter(({ norm }) => norm > 0).map(({ norm }) => Math.log(norm));
  // tiny norms must not make all others look alike
  const high = Math.max(...logs), low = Math.max(Math.min(...logs), high - Math.log(1e5));
  return edges.map((edge) => {
    const share = edge.norm > 0 ? Math.max(0, (Math.log(edge.norm) - low) / (high - low || 1)) : -0.1;
    edge.element = draw("path", { class: `flow${is_leaf(edge.to) ? " quiet" : ""}`, d: edge_path(edge, places),
      "stroke-width": (1.5 + 7 * share).toFixed(2), onpointerenter: () => point({ edge }),
      onpointerleave: () => point(null) }, draw("title", {}, `${edge.from.name} \u2192 ${edge.to.name}: ${edge.norm}`));
    return edge.element;
  });
}

function draw_place(place, point) {
  const { name, path, kind, toggles, x, y, wide } = place, norm = path ? shown(place.norm) : "no path";
  const text = end_of(name, (wide - 8) / letters), open = toggles !== undefined && unfolded().includes(toggles);
  const others = unfolded().filter((key) => key !== toggles);
  const toggle = () => update({ unfolded: (open ? others : [...others, toggles]).join(" ") });
  const acts = toggles === undefined ? { role: "img" }
    : { role: "button", "aria-expanded": open, onclick: toggle, onkeydown: on_button_keys(toggle) };
  place.element = draw("g", { class: `place ${kind}${path ? "" : " lost"}`, tabindex: 0,
    "data-focus": `place ${place.id}`, "aria-label": `${place_title(place)}: ${path ? `norm ${norm}` : norm}`, ...acts,
    onpointerenter: () => point({ place }), onpointerleave: () => point(null), onfocus: () => point({ place }),
    onblur: () => point(null) }, draw("title", {}, `${place_title(place)}: ${path ? place.norm : norm}`),
    draw("rect", { x, y, width: wide, height: box.height, rx: 5 }),
    svg_text("title middle", x + wide / 2, y + 16, text), svg_text("middle norm", x + wide / 2, y + 31, norm));
  return place.element;
}

const place_title = ({ members, name, layer }) => members.length === 1 ? members[0].id
  : `${name}${layer === null ? "" : `, layer ${layer}`}: ${members.map(({ id }) => id).join(", ")}`;

// ---- The view
const drawn = { picture: null, pointed: null };

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
  const graph = graph_shown();
  Object.assign(drawn, { picture: graph && pictured(graph), pointed: null });
  if (!graph) return stage.append(note(`No graph recorded for ${run_shown().label}.`));
  const container = make("div", { class: "graph scroll" });
  stage.append(container, note("The input is left, the loss right: the gradient flows from right to left and upwards. Widths " +
    "follow the logarithm of its norm. Norms of folded places are the root of the sum of squares. Dashed red places have no " +
    "path: the loss does not depend on them, or they are frozen. Edges to parameters appear at the pointer or the focus."), graph_tables(graph));
  const { titles, width, least, height } = layout(drawn.picture, container.clientWidth);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, style: `min-width: ${least}px`, role: "group",
    "aria-label": "graph of the step" });
  svg.append(...titles.map(({ y, text }) => svg_text("tick", box.left, y, text)),
    ...draw_flows(drawn.picture, point_at), ...drawn.picture.places.map((place) => draw_place(place, point_at)));
  container.append(svg);
  show_cursor();
}

function point_at(pointed) {
  drawn.pointed = pointed;
  const near = ({ from, to }, edge) => pointed && (pointed.edge === edge || [from, to].includes(pointed.place));
  for (const edge of drawn.picture.edges) edge.element.classList.toggle("near", Boolean(near(edge, edge)));
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
  if (!drawn.picture) return [];
  const { places, edges } = drawn.picture, lost = places.filter(({ path }) => !path);
  const { place, edge } = drawn.pointed ?? {};
  if (edge) return [`from ${edge.from.name} to ${edge.to.name}:`, ...named_norm("norm", edge.norm)];
  if (place) return place_readout(place, edges);
  return [`${places.length} places, ${edges.length} edges, ${lost.length} without a path`];
}

export const graph_view = {
  key: "graph", title: "Graph", wants: () => Boolean(data.graph),
  hint: "Look for a thin edge after a wide edge: there the gradient is lost on its way.",
  controls: () => ["layers"], without: ["beside"],
  readout: graph_readout,
  draw: draw_graph,
};
