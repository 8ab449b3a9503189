#include "examples/whence/look/graph_picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "examples/whence/cli/text.h"
#include "examples/whence/report/encode.h"
#include "examples/whence/report/svg.h"

namespace whence::look {
namespace {

using report::number;

double norm_of(const std::vector<double>& numbers) {
  return std::sqrt(std::inner_product(numbers.begin(), numbers.end(), numbers.begin(), 0.0));
}

// ---- What is drawn as one

struct Box {
  std::string name, spoken;
  index_t layer = -1, order = 0;
  Graph::Kind kind = Graph::Kind::quantity;
  std::vector<std::string> lost = {};  // members that backward has not come by
  std::size_t members = 0;
  double norm = 0;
  std::size_t column = 0, lane = 0;
  double x = 0, y = 0;

  [[nodiscard]] bool leaf() const { return kind == Graph::Kind::parameter; }
  [[nodiscard]] bool reached() const { return lost.size() < members; }
};
struct Flow {
  std::size_t from, to;  // boxes
  double norm;
};
struct Drawn {
  std::vector<Box> boxes;
  std::vector<Flow> flows;
};

std::string without(std::string text, std::string_view front) {
  return text.starts_with(front) && text.size() > front.size() ? text.substr(front.size()) : text;
}
// "mlp.hidden" of "blocks.3.mlp.hidden".
std::string name_within(const std::string& path) {
  return path.starts_with("blocks.") ? without(path.substr(path.find('.', 7) + 1), "attention.") : path;
}
std::string module_of(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string::npos ? path : path.substr(0, dot);
}

// Norms of what is drawn as one are the root of the sum of their squares.
Drawn drawn_of(const Graph& graph) {
  Drawn drawn;
  std::map<std::string, std::size_t> by_key, by_id;
  for (const Graph::Node& node : graph.nodes) {
    const bool parameter = node.kind == Graph::Kind::parameter;
    const std::string key = parameter ? "parameters " + module_of(node.id) : node.id;
    const auto [found, fresh] = by_key.try_emplace(key, drawn.boxes.size());
    if (fresh)
      drawn.boxes.push_back(
          {.name = parameter ? name_within(module_of(node.id)) : without(name_within(node.name), "position."),
              .spoken = parameter ? module_of(node.id) : node.id,
              .layer = node.layer,
              .order = node.order,
              .kind = node.kind});
    Box& box = drawn.boxes[found->second];
    ++box.members;
    if (node.reached) box.order = std::min(box.order, node.order);
    if (!node.reached) box.lost.push_back(node.id.substr(node.id.rfind('.') + 1));
    box.norm = std::hypot(box.norm, node.norm);
    by_id[node.id] = found->second;
  }
  std::map<std::pair<std::size_t, std::size_t>, double> norms;
  for (const Graph::Edge& edge : graph.edges) {
    if (!by_id.contains(edge.from) || !by_id.contains(edge.to)) continue;
    double& norm = norms[{by_id.at(edge.from), by_id.at(edge.to)}];
    norm = std::hypot(norm, edge.norm);
  }
  for (const auto& [ends, norm] : norms)
    if (ends.first != ends.second) drawn.flows.push_back({ends.first, ends.second, norm});
  return drawn;
}

// ---- Where it is drawn

constexpr double wide = 132, high = 40, gap = 30, lane_height = 62, head = 28, margin = 10;

using Row = std::vector<std::size_t>;  // boxes

bool holds(const Row& row, std::size_t box) { return std::ranges::find(row, box) != row.end(); }

// A column is the longest way from the layer's input; what nothing leads to stands before what it leads to.
void set_columns(Drawn& drawn, const Row& row) {
  std::vector<Flow> inner;
  for (const Flow& flow : drawn.flows)
    if (holds(row, flow.from) && holds(row, flow.to)) inner.push_back(flow);
  for (std::size_t round = 0; round < row.size(); ++round)
    for (const Flow& flow : inner)
      drawn.boxes[flow.from].column =
          std::clamp(drawn.boxes[flow.to].column + 1, drawn.boxes[flow.from].column, row.size() - 1);
  std::size_t last = 0;
  for (const std::size_t box : row) last = std::max(last, drawn.boxes[box].column);
  for (const std::size_t box : row) {
    if (std::ranges::find(inner, box, &Flow::from) != inner.end()) continue;
    std::size_t next = last + 1;
    for (const Flow& flow : inner)
      if (flow.to == box) next = std::min(next, drawn.boxes[flow.from].column);
    drawn.boxes[box].column = next <= last ? next - std::min<std::size_t>(next, 1) : row.size() > 1 ? last / 2 : 0;
  }
}

// The first lane that is free in the box's column; returns how many lanes the row takes.
std::size_t set_lanes(Drawn& drawn, const Row& row) {
  std::set<std::pair<std::size_t, std::size_t>> taken;
  std::size_t lanes = 0;
  for (const std::size_t box : row) {
    Box& place = drawn.boxes[box];
    // The content has the second lane, so that what positions add goes around it.
    static const std::set<std::string> content{"x", "k", "scores", "logits", "pattern", "mlp.hidden"};
    place.lane = place.name == "v" || place.name == "z" ? 2 : content.contains(place.name) ? 1 : 0;
    while (!taken.insert({place.column, place.lane}).second) ++place.lane;
    lanes = std::max(lanes, place.lane + 1);
  }
  return lanes;
}

// Parameters stand below what they feed, or where there is room beside it; returns the lanes that are taken then.
std::size_t set_leaves(Drawn& drawn, const Row& leaves, std::size_t below, std::size_t columns) {
  std::set<std::pair<std::size_t, std::size_t>> taken;
  std::size_t lanes = below;
  for (const std::size_t leaf : leaves) {
    std::size_t sum = 0, count = 0;
    for (const Flow& flow : drawn.flows)
      if (flow.to == leaf) sum += drawn.boxes[flow.from].column, ++count;
    const auto wanted = static_cast<std::ptrdiff_t>(count ? (sum + count / 2) / count : 0);
    std::pair<std::size_t, std::size_t> best;
    std::ptrdiff_t nearest = std::numeric_limits<std::ptrdiff_t>::max();
    for (std::size_t slot = 0; slot < leaves.size() * columns; ++slot) {
      const std::pair<std::size_t, std::size_t> at{slot / columns, slot % columns};
      const std::ptrdiff_t far =
          3 * static_cast<std::ptrdiff_t>(at.first) + std::abs(static_cast<std::ptrdiff_t>(at.second) - wanted);
      if (far < nearest && !taken.contains(at)) nearest = far, best = at;
    }
    taken.insert(best);
    drawn.boxes[leaf].column = best.second, drawn.boxes[leaf].lane = below + best.first;
    lanes = std::max(lanes, below + best.first + 1);
  }
  return lanes;
}

// Rows are layers, first what belongs to none, last the loss. Writes their titles.
struct Layout {
  double width = 0, height = 0;
  std::string titles;
};
Layout lay_out(Drawn& drawn) {
  index_t layers = 0;
  for (const Box& box : drawn.boxes) layers = std::max(layers, box.layer + 1);
  std::vector<Row> rows(static_cast<std::size_t>(layers) + 2), leaves = rows;
  for (std::size_t box = 0; box < drawn.boxes.size(); ++box) {
    const Box& place = drawn.boxes[box];
    const auto row = static_cast<std::size_t>(place.kind == Graph::Kind::loss ? layers + 1 : place.layer + 1);
    (place.leaf() ? leaves : rows)[row].push_back(box);
  }
  std::size_t columns = 6;
  for (const Row& row : rows) {
    set_columns(drawn, row);
    for (const std::size_t box : row) columns = std::max(columns, drawn.boxes[box].column + 1);
  }
  Layout layout{2 * margin + static_cast<double>(columns) * (wide + gap) - gap, 0, ""};
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (rows[row].empty() && leaves[row].empty()) continue;
    const std::size_t lanes = set_leaves(drawn, leaves[row], set_lanes(drawn, rows[row]), columns);
    const bool loss = row + 1 == rows.size();
    if (loss) drawn.boxes[rows[row][0]].column = columns - 1;
    if (!loss)
      layout.titles +=
          report::svg_text("title", margin, layout.height + 14, row == 0 ? "of no layer" : to_text("layer ", row - 1));
    for (const Row* each : {&rows[row], &leaves[row]})
      for (const std::size_t box : *each) {
        Box& place = drawn.boxes[box];
        place.x = margin + static_cast<double>(place.column) * (wide + gap);
        place.y = layout.height + head + static_cast<double>(place.lane) * lane_height;
      }
    layout.height += head + static_cast<double>(lanes) * lane_height;
  }
  return layout;
}

// ---- The picture

struct Point {
  double x = 0, y = 0;
};
using Curve = std::array<Point, 4>;  // Bezier

// Sideways within a layer, up and down between layers and from parameters.
Curve curve_of(const Box& from, const Box& to) {
  if (from.layer == to.layer && !from.leaf() && !to.leaf() && to.x < from.x) {
    const Point begin{from.x, from.y + high / 2}, end{to.x + wide, to.y + high / 2};
    const double bend = (begin.x + end.x) / 2;
    return {begin, Point{bend, begin.y}, Point{bend, end.y}, end};
  }
  const bool below = from.y >= to.y;
  const Point begin{from.x + wide / 2, from.y + (below ? 0 : high)}, end{to.x + wide / 2, to.y + (below ? high : 0)};
  const double aside = begin.x == end.x && std::abs(begin.y - end.y) > lane_height ? 0.6 * wide : 0;
  const double bend = (begin.y + end.y) / 2;
  return {begin, Point{begin.x + aside, bend}, Point{end.x + aside, bend}, end};
}

Point at(const Curve& curve, double t) {
  const double u = 1 - t, w[] = {u * u * u, 3 * u * u * t, 3 * u * t * t, t * t * t};
  Point point;
  for (std::size_t k = 0; k < 4; ++k) point.x += w[k] * curve[k].x, point.y += w[k] * curve[k].y;
  return point;
}

std::string path_of(const Curve& curve) {
  const auto pair = [](const Point& point) { return number(point.x, 6) + " " + number(point.y, 6); };
  return to_text("M", pair(curve[0]), "C", pair(curve[1]), " ", pair(curve[2]), " ", pair(curve[3]));
}

// A place on the curve where a number covers no box and no other number; nothing where there is none.
std::optional<Point> free_place(const Curve& curve, const std::vector<Box>& boxes, const std::vector<Point>& taken) {
  constexpr double half_width = 24, half_height = 7;
  for (const double t : {0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8, 0.1, 0.9}) {
    const Point point = at(curve, t);
    const bool covers = std::ranges::any_of(boxes, [&](const Box& box) {
      return point.x + half_width > box.x && point.x - half_width < box.x + wide && point.y + half_height > box.y &&
             point.y - half_height < box.y + high;
    });
    const bool crowded = std::ranges::any_of(taken, [&](const Point& other) {
      return std::abs(point.x - other.x) < 2 * half_width && std::abs(point.y - other.y) < 2 * half_height;
    });
    if (!covers && !crowded) return point;
  }
  return std::nullopt;
}

// Thicker where more of the gradient comes. What is next to nothing must not make all else look alike. Norms for which
// there is no room at their line are listed in `elsewhere`; that of a parameter stands in its box.
struct Flows {
  std::string lines, norms, elsewhere;
};
Flows draw_flows(const Drawn& drawn) {
  Flows drawing;
  double most = 0;
  for (const Flow& flow : drawn.flows) most = std::max(most, flow.norm);
  std::vector<Point> taken;
  for (const Flow& flow : drawn.flows) {
    const Box &from = drawn.boxes[flow.from], &to = drawn.boxes[flow.to];
    const double share = flow.norm > 0 ? std::max(0.0, 1 + std::log10(flow.norm / most) / 5) : 0;
    const Curve curve = curve_of(from, to);
    drawing.lines += to_text("<path class=\"flow", to.leaf() ? " quiet" : "", "\" stroke-width=\"",
        number(to.leaf() ? 0.7 + 2 * share : 1 + 6 * share, 3), "\" d=\"", path_of(curve), "\"><title>",
        report::escape(from.spoken), " to ", report::escape(to.spoken), ": ", number(flow.norm), "</title></path>\n");
    if (to.leaf()) continue;
    const std::optional<Point> place = free_place(curve, drawn.boxes, taken);
    if (place) {
      taken.push_back(*place);
      drawing.norms += report::svg_text("along middle", place->x, place->y + 3, number(flow.norm, 2));
    } else {
      drawing.elsewhere +=
          to_text(drawing.elsewhere.empty() ? "" : ";  ", from.spoken, " to ", to.spoken, ": ", number(flow.norm, 2));
    }
  }
  return drawing;
}

std::string draw(const Box& box) {
  const bool lost = !box.lost.empty();
  const char* const kind = box.kind == Graph::Kind::loss ? "loss" : box.leaf() ? "parameter" : "quantity";
  std::string words = box.reached() ? to_text("norm ", number(box.norm, 3)) : "NO PATH";
  if (box.reached() && lost) words += to_text(", NO PATH: ", box.lost[0], box.lost.size() > 1 ? ", ..." : "");
  std::string name = box.members > 1 ? to_text(box.name, " (", box.members, ")") : box.name;
  constexpr std::size_t room = 19;
  if (display_width(name) > room) name = "\u2026" + name.substr(name.size() - (room - 1));  // its end tells more
  std::string out = to_text("<g class=\"", kind, lost ? " lost" : "", "\"><title>", report::escape(box.spoken), ": ",
      report::escape(words), "</title><rect x=\"", number(box.x, 6), "\" y=\"", number(box.y, 6), "\" width=\"",
      number(wide), "\" height=\"", number(high), "\" rx=\"5\"/>");
  out += report::svg_text("title middle", box.x + wide / 2, box.y + 17, name);
  out += report::svg_text("norm middle", box.x + wide / 2, box.y + 33, words);
  if (box.reached()) out += report::svg_text("order", box.x + 3, box.y - 3, std::to_string(box.order));
  return out + "</g>\n";
}

constexpr const char* style = R"(:root { --lost: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --lost: #ff8a80; } }
.flow { fill: none; stroke: var(--c0); stroke-opacity: .45; } .quiet { stroke: var(--soft); stroke-opacity: .3; }
rect { fill: var(--raised); stroke: var(--soft); stroke-width: 1.2; }
.loss rect { stroke: var(--ink); stroke-width: 2.5; } .parameter rect { fill: var(--page); }
.lost rect { stroke: var(--lost); stroke-width: 2; stroke-dasharray: 6 3; } .lost text { fill: var(--lost); }
svg .norm { font-size: 11px; } svg .along { font-size: 10px; paint-order: stroke; stroke: var(--page); stroke-width: 3px; }
svg .order { font-size: 10px; fill: var(--soft); }
)";

}  // namespace

Graph graph_of(const Inspection& inspection) {
  Graph graph{{{.id = "loss", .name = "loss", .kind = Graph::Kind::loss, .norm = 1, .reached = true}}, {}};
  std::map<std::string, index_t> order;
  for (const Passage& passage : inspection.graph()) {
    order.emplace(passage.to, static_cast<index_t>(order.size()) + 1);
    graph.edges.push_back({passage.from.empty() ? "loss" : passage.from, passage.to, passage.norm});
  }
  for (const std::vector<Quantity>* all : {&inspection.quantities(), &inspection.parameters()}) {
    for (const Quantity& quantity : *all) {
      const bool reached = order.contains(quantity.path);
      graph.nodes.push_back({.id = quantity.path,
          .name = quantity.is_parameter ? quantity.path : quantity.name,
          .layer = quantity.layer,
          .kind = quantity.is_parameter ? Graph::Kind::parameter : Graph::Kind::quantity,
          .order = reached ? order.at(quantity.path) : static_cast<index_t>(order.size()) + 1,
          .norm = reached && quantity.gradient.defined() ? norm_of(quantity.gradient.to_vector()) : 0,
          .reached = reached});
    }
  }
  return graph;
}

std::string graph_svg(const Graph& graph, const std::string& title) {
  Drawn drawn = drawn_of(graph);
  const Layout layout = lay_out(drawn);
  const std::string note =
      "The step as backward goes through it, from the loss up: lines are as thick as the gradient's norm along them "
      "(logarithmic), small numbers above boxes are the order in which backward comes by. Dashed red boxes: NO PATH "
      "from the loss.";
  report::Picture picture{.width = layout.width, .title = title, .description = note, .style = style};
  picture.body = report::svg_text("title", margin, 20, title);
  const report::SvgLines words = report::svg_lines("soft", margin, 38, note, layout.width - 2 * margin);
  const Flows flows = draw_flows(drawn);
  picture.body +=
      to_text(words.body, "<g transform=\"translate(0 ", 36 + words.height, ")\">", layout.titles, flows.lines);
  for (const Box& box : drawn.boxes) picture.body += draw(box);
  picture.body += flows.norms + "</g>\n";
  picture.height = 36 + words.height + layout.height;
  if (!flows.elsewhere.empty()) {
    const report::SvgLines rest = report::svg_lines("soft", margin, picture.height + 16,
        "Norms for which there is no room at their lines: " + flows.elsewhere, layout.width - 2 * margin);
    picture.body += rest.body;
    picture.height += rest.height + 20;
  }
  return svg_file(picture);
}

}  // namespace whence::look
