#include "examples/whence/look/graph.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tensor/error.h"

namespace whence::look {
namespace {

// "gates" for "blocks.3.attention.position.gates". A path that consists only of prefixes stays.
std::string name_within(std::string path) {
  if (path.starts_with("blocks.")) path = path.substr(path.find('.', 7) + 1);
  for (const std::string front : {"shared.", "attention.", "position."})
    if (path.starts_with(front) && path.size() > front.size()) path = path.substr(front.size());
  return path;
}

std::string module_of(const std::string& path) { return path.substr(0, path.rfind('.')); }

Graph nodes_and_edges(const Inspection& inspection) {
  Graph graph{{{.id = "loss", .kind = Graph::Kind::loss, .norm = 1, .reached = true}}, {}, {}};
  std::map<std::string, index_t> order;
  for (const Passage& passage : inspection.graph()) {
    order.emplace(passage.to, static_cast<index_t>(order.size()) + 1);
    graph.edges.push_back({passage.from.empty() ? "loss" : passage.from, passage.to, passage.norm});
  }
  for (const std::vector<Quantity>* all : {&inspection.quantities(), &inspection.parameters()}) {
    for (const Quantity& quantity : *all) {
      const bool reached = order.contains(quantity.path);
      graph.nodes.push_back({.id = quantity.path,
          .layer = quantity.layer,
          .kind = quantity.is_parameter ? Graph::Kind::parameter : Graph::Kind::quantity,
          .order = reached ? order.at(quantity.path) : static_cast<index_t>(order.size()) + 1,
          .norm = reached && quantity.gradient.defined() ? std::sqrt(dot(quantity.gradient, quantity.gradient)) : 0,
          .reached = reached});
    }
  }
  return graph;
}

// ---- Boxes

void make_boxes(Graph& graph) {
  std::map<std::string, std::size_t> known;
  const auto box = [&](const std::string& id, const std::string& name, const Graph::Node& node) {
    const auto [found, fresh] = known.try_emplace(id, graph.boxes.size());
    if (fresh) graph.boxes.push_back({id, name, node.layer, node.kind});
    return found->second;
  };
  for (Graph::Node& node : graph.nodes) {
    if (node.kind != Graph::Kind::parameter) {
      node.box = node.group = box(node.id, name_within(node.id), node);
      continue;
    }
    const std::string module = module_of(node.id);
    node.box = box("parameters " + module, name_within(module), node);
    node.group = box("parameters " + (node.layer < 0 ? "-" : std::to_string(node.layer)), "parameters", node);
  }
}

class Layout {
 public:
  explicit Layout(Graph& graph) : boxes_(graph.boxes) {
    std::map<std::string, const Graph::Node*> by_id;
    for (const Graph::Node& node : graph.nodes) by_id[node.id] = &node;
    for (const Graph::Edge& edge : graph.edges) {
      if (!by_id.contains(edge.from) || !by_id.contains(edge.to)) continue;
      const Graph::Node &from = *by_id.at(edge.from), &to = *by_id.at(edge.to);
      for (const std::size_t end : {to.box, to.group}) flows_.emplace(from.box, end);
    }
    std::map<index_t, Row> rows, modules, groups;  // by layer
    for (const Graph::Node& node : graph.nodes) {
      if (node.kind == Graph::Kind::loss) continue;
      const bool leaf = node.kind == Graph::Kind::parameter;
      (leaf ? modules : rows)[node.layer].insert(node.box);
      if (leaf) groups[node.layer].insert(node.group);
    }
    for (const auto& [layer, row] : rows) set_columns(row);
    for (const Graph::Box& box : boxes_) columns_ = std::max(columns_, box.column + 1);
    boxes_[0].column = columns_ - 1;  // the loss
    for (const auto& [layer, row] : rows) set_lanes(row);
    for (const auto* leaves : {&modules, &groups})
      for (const auto& [layer, row] : *leaves) set_leaves(row, lanes_of(rows[layer]));
  }

 private:
  using Row = std::set<std::size_t>;  // boxes

  // A column is the length of the longest path from the layer's input. Boxes without an input go just before their output.
  void set_columns(const Row& row) {
    std::vector<std::pair<std::size_t, std::size_t>> inner;
    for (const auto& flow : flows_)
      if (row.contains(flow.first) && row.contains(flow.second)) inner.push_back(flow);
    const auto column = [&](std::size_t box) -> std::size_t& { return boxes_[box].column; };
    for (std::size_t round = 0; round < row.size(); ++round)
      for (const auto& [from, to] : inner) column(from) = std::clamp(column(to) + 1, column(from), row.size() - 1);
    std::size_t last = 0;
    for (const std::size_t box : row) last = std::max(last, column(box));
    for (const std::size_t box : row) {
      if (std::ranges::any_of(inner, [&](const auto& flow) { return flow.first == box; })) continue;
      std::size_t next = last + 1;
      for (const auto& [from, to] : inner)
        if (to == box) next = std::min(next, column(from));
      column(box) = next <= last ? next - std::min<std::size_t>(next, 1) : row.size() > 1 ? last / 2 : 0;
    }
  }

  // Content is in the middle lane, so that the boxes of positions go around it.
  void set_lanes(const Row& row) {
    static const std::map<std::string, std::size_t> lanes{
        {"x", 1}, {"k", 1}, {"scores", 1}, {"logits", 1}, {"pattern", 1}, {"mlp.hidden", 1}, {"v", 2}, {"z", 2}};
    std::set<std::pair<std::size_t, std::size_t>> taken;
    std::size_t first = row.size();
    for (const bool content : {true, false}) {
      for (const std::size_t box : row) {
        Graph::Box& place = boxes_[box];
        const auto known = lanes.find(place.name);
        if ((known != lanes.end()) != content) continue;
        place.lane = content ? known->second : 0;
        if (taken.contains({place.column, place.lane})) place.lane = 0;
        while (!taken.insert({place.column, place.lane}).second) ++place.lane;
        first = std::min(first, place.lane);
      }
    }
    for (const std::size_t box : row) boxes_[box].lane -= first;
  }

  std::size_t lanes_of(const Row& row) const {
    std::size_t lanes = 0;
    for (const std::size_t box : row) lanes = std::max(lanes, boxes_[box].lane + 1);
    return lanes;
  }

  // Parameters are placed below the box that reads them, or in the nearest free slot.
  void set_leaves(const Row& leaves, std::size_t below) {
    std::vector<std::pair<std::size_t, std::size_t>> free;  // lane and column
    for (std::size_t slot = 0; slot < leaves.size() * columns_; ++slot)
      free.emplace_back(slot / columns_, slot % columns_);
    for (const std::size_t leaf : leaves) {
      std::size_t sum = 0, count = 0;
      for (const auto& [from, to] : flows_)
        if (to == leaf) sum += boxes_[from].column, ++count;
      const std::size_t wanted = count ? (sum + count / 2) / count : 0;
      const auto nearest = std::ranges::min_element(free, {},
          [&](const auto& at) { return 3 * at.first + std::max(at.second, wanted) - std::min(at.second, wanted); });
      boxes_[leaf].column = nearest->second, boxes_[leaf].lane = below + nearest->first;
      free.erase(nearest);
    }
  }

  std::vector<Graph::Box>& boxes_;
  std::set<std::pair<std::size_t, std::size_t>> flows_;  // from box to box, in the direction of backward
  std::size_t columns_ = 6;                              // at least
};

}  // namespace

Graph graph_of(const Inspection& inspection) {
  Graph graph = nodes_and_edges(inspection);
  make_boxes(graph);
  Layout{graph};
  return graph;
}

}  // namespace whence::look
