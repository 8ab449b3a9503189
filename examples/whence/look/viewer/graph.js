// Part of the view "graph": what of the step's graph is drawn, folded where it is much, and where on the picture.

// ---- Folding
const graph_shown = () => run_shown().graph ?? null;
// What stands beside the attention of a layer has its layer in its path alone.
const layer_of = ({ id, layer }) => layer ?? (/^blocks\.\d+\./.test(id) ? Number(id.split(".")[1]) : null);
const name_within = (path) => path.replace(/^(blocks\.\d+\.|shared\.)?(attention\.)?(position\.)?(?=.)/, "");
const layer_key = (layer) => layer === null ? "-" : String(layer);
const unfolded = () => state.unfolded.split(" ").filter(Boolean);

// What a node is drawn as: itself, its module's parameters, or the layer that is not looked at.
function drawn_as(node) {
  const { id, kind } = node, layer = layer_of(node), key = layer_key(layer), name = name_within(node.name);
  if (layer !== null && state.layers !== "all" && state.layers !== key) {
    return { id: `layer ${key}`, name: `layer ${key}`, layer, kind: "folded" };
  }
  if (kind !== "parameter") return { id, name, layer, kind };
  if (!unfolded().includes(key)) return { id: `parameters ${key}`, name: "parameters", layer, kind, toggles: key };
  const module = id.split(".").slice(0, -1).join(".") || id;
  return { id: `parameters ${module}`, name: name_within(module), layer, kind, toggles: key, title: module };
}

// Norms of what is folded together are the root of the sum of their squares.
function pictured(graph) {
  const places = new Map(), at = new Map(), edges = new Map();
  for (const node of graph.nodes) {
    const place = drawn_as(node);
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
    const { members } = place, reached = members.filter(({ path }) => path);
    Object.assign(place, { path: reached.length > 0, norm: norm_of(members.map(({ norm }) => norm)),
      order: Math.min(...reached.map(({ order }) => order)) });
    if (members.length > 1 || place.toggles !== undefined) place.name += ` (${members.length})`;
  }
  return { places: [...places.values()],
           edges: [...edges.values()].map((edge) => ({ ...edge, norm: norm_of(edge.norms) })) };
}

// ---- Layout
const box = { height: 38, lane: 54, gap: 16, top: 24, left: 8 };
const box_width = () => state.digits ? 160 : 118;
const is_leaf = ({ kind }) => kind === "parameter";

// A column is the longest way from the layer's input; what nothing leads to stands before what it leads to.
function set_columns(places, edges) {
  const inner = edges.filter(({ from, to }) => places.includes(from) && places.includes(to));
  for (const place of places) place.column = 0;
  for (const _ of places) {
    for (const { from, to } of inner) from.column = clamped(to.column + 1, from.column, places.length - 1);
  }
  const last = Math.max(...places.map(({ column }) => column));
  for (const place of places.filter((each) => !inner.some(({ from }) => from === each))) {
    const next = inner.filter(({ to }) => to === place).map(({ from }) => from.column);
    place.column = next.length ? Math.max(0, Math.min(...next) - 1) : places.length > 1 ? Math.floor(last / 2) : 0;
  }
}

// The content has the middle lane, so that what positions add goes around it.
const lanes = { x: 1, k: 1, scores: 1, logits: 1, pattern: 1, "mlp.hidden": 1, v: 2, z: 2 };
function set_lanes(places) {
  const taken = new Set(), free = (place, lane) => !taken.has(`${place.column} ${lane}`);
  for (const place of [...places].sort((one, other) => (other.name in lanes) - (one.name in lanes))) {
    place.lane = [lanes[place.name] ?? 0, ...counted(places.length + 3)].find((lane) => free(place, lane));
    taken.add(`${place.column} ${place.lane}`);
  }
  const first = Math.min(...places.map(({ lane }) => lane));
  for (const place of places) place.lane -= first;
}

// Parameters stand below what they feed, or where there is room beside it.
function set_leaves(leaves, edges, below, columns) {
  const taken = new Set();
  for (const place of leaves) {
    const fed = edges.filter(({ to }) => to === place).map(({ from }) => from.column ?? 0);
    const wanted = fed.length ? Math.round(sum_of(fed) / fed.length) : 0;
    const slots = counted(leaves.length * columns).map((k) => ({ column: k % columns, lane: Math.floor(k / columns) }));
    const far = ({ column, lane }) => 3 * lane + Math.abs(column - wanted);
    const slot = slots.filter((each) => !taken.has(each.lane * columns + each.column))
      .sort((one, other) => far(one) - far(other))[0];
    taken.add(slot.lane * columns + slot.column);
    Object.assign(place, { column: slot.column, lane: below + slot.lane });
  }
}

// Rows are layers, parameters the last lanes of a row; returns the rows and the size of all.
function layout({ places, edges }, space) {
  const groups = [(each) => each.layer === null && each.kind !== "loss",
    ...counted(data.layers).map((layer) => (each) => each.layer === layer), (each) => each.kind === "loss"];
  const rows = groups.map((belongs) => places.filter(belongs)).filter((row) => row.length);
  for (const row of rows) set_columns(row.filter((each) => !is_leaf(each)), edges);
  const columns = Math.max(6, ...places.map(({ column = 0 }) => column + 1));
  const width = Math.max(space, columns * (box_width() + box.gap)), step = width / columns;
  let top = 0;
  const titles = rows.map((row) => {
    const inner = row.filter((each) => !is_leaf(each)), leaves = row.filter(is_leaf), titled = row[0].kind !== "loss";
    set_lanes(inner);
    const below = inner.length ? 1 + Math.max(...inner.map(({ lane }) => lane)) : 0;
    set_leaves(leaves, edges, below, columns);
    if (!titled) inner.forEach((place) => place.column = columns - 1);
    for (const place of row) {
      place.x = place.column * step + box.left;
      place.y = top + box.top + place.lane * box.lane;
    }
    const title = { y: top + 14, text: !titled ? "" : row[0].layer === null ? "of no layer" : `layer ${row[0].layer}` };
    top += box.top + (1 + Math.max(...row.map(({ lane }) => lane))) * box.lane;
    return title;
  });
  return { titles, width, height: top };
}

// ---- Picture
// Sideways within a layer, up and down between layers and from parameters.
function edge_path({ from, to }, places) {
  const wide = box_width(), middle = box.height / 2;
  if (from.layer === to.layer && !is_leaf(from) && !is_leaf(to) && to.x < from.x) {
    const [x0, x1, y0, y1] = [to.x + wide, from.x, to.y + middle, from.y + middle], bend = (x0 + x1) / 2;
    return `M${x1} ${y1}C${bend} ${y1} ${bend} ${y0} ${x0} ${y0}`;
  }
  const below = from.y >= to.y, y0 = to.y + (below ? box.height : 0), y1 = from.y + (below ? 0 : box.height);
  const [x0, x1, bend] = [to.x + wide / 2, from.x + wide / 2, (y0 + y1) / 2];
  const between = ({ x, y }) => x === to.x && y > Math.min(to.y, from.y) && y < Math.max(to.y, from.y);
  const aside = x0 === x1 && places.some(between) ? 0.8 * wide : 0;
  return `M${x1} ${y1}C${x1 + aside} ${bend} ${x0 + aside} ${bend} ${x0} ${y0}`;
}

function draw_flows({ edges, places }, point) {
  const logs = edges.filter(({ norm }) => norm > 0).map(({ norm }) => Math.log(norm));
  // what is next to nothing must not make all else look alike
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
  const { name, path, kind, toggles, x, y } = place, wide = box_width(), norm = path ? shown(place.norm) : "no path";
  const text = end_of(name, (wide - 6) / 7), open = toggles !== undefined && unfolded().includes(toggles);
  const others = unfolded().filter((key) => key !== toggles);
  const toggle = () => update({ unfolded: (open ? others : [...others, toggles]).join(" ") });
  const acts = toggles === undefined ? { role: "img" }
    : { role: "button", "aria-expanded": String(open), onclick: toggle, onkeydown: on_button_keys(toggle) };
  place.element = draw("g", { class: `place ${kind}${path ? "" : " lost"}`, tabindex: 0,
    "data-focus": `place ${place.id}`, "aria-label": `${place_title(place)}: ${path ? `norm ${norm}` : norm}`, ...acts,
    onpointerenter: () => point({ place }), onpointerleave: () => point(null), onfocus: () => point({ place }),
    onblur: () => point(null) }, draw("title", {}, `${place_title(place)}: ${path ? place.norm : norm}`),
    draw("rect", { x, y, width: wide, height: box.height, rx: 5 }),
    draw("text", { class: "title middle", x: x + wide / 2, y: y + 16 }, text),
    draw("text", { class: "middle norm", x: x + wide / 2, y: y + 31 }, norm));
  return place.element;
}

const place_title = ({ members, title, name, layer }) => members.length === 1 ? members[0].id
  : `${title ?? name}${layer === null ? "" : `, layer ${layer}`}: ${members.map(({ id }) => id).join(", ")}`;
