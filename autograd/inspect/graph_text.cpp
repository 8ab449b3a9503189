#include "autograd/inspect/graph_text.h"

#include <algorithm>
#include <iomanip>
#include <unordered_set>

#include "autograd/graph.h"
#include "tensor/device/allocator.h"

namespace whence {
namespace {

// Returns the module of a parameter, or that ran the op; "" for the root and for nodes without one.
std::string module_of(const Node& node) {
  if (!node.is_leaf()) return node.path;
  const std::size_t dot = node.path.rfind('.');
  return dot == std::string::npos ? "" : node.path.substr(0, dot);
}

std::string results_of(const Node& node) {
  std::string text;
  for (std::size_t k = 0; k < node.results(); ++k)
    text += to_text("\\n", node.result(k).dtype, ' ', node.result(k).shape);
  return text;
}

// Returns the bytes of the storages that `node` keeps and that are not in `counted` yet.
std::size_t kept_bytes(const Node& node, std::unordered_set<const Storage*>& counted) {
  std::size_t bytes = 0;
  for (const SavedTensor* saved = node.first_saved(); saved; saved = saved->next())
    if (saved->defined() && counted.insert(&saved->peek().storage()).second) bytes += saved->peek().storage().size();
  return bytes;
}

}  // namespace

std::string to_dot(const Tensor& y) {
  const auto nodes = detail::nodes_behind("to_dot", y);
  std::map<const Node*, std::size_t> numbers;
  for (const Node* node : nodes) numbers.emplace(node, numbers.size() + 1);
  std::ostringstream out;
  out << "digraph whence {\n  rankdir=TB;\n  node [fontname=\"monospace\", fontsize=10];\n";
  std::map<std::string, std::vector<const Node*>> modules;
  for (const Node* node : nodes) modules[module_of(*node)].push_back(node);
  std::vector<std::string> open;  // the modules around the current line, outermost first
  for (const auto& [module, members] : modules) {
    for (; !open.empty() && !module.starts_with(open.back() + "."); open.pop_back()) out << "  }\n";
    if (!module.empty()) {
      const std::string within = open.empty() ? module : module.substr(open.back().size() + 1);
      out << "  subgraph " << std::quoted("cluster_" + module) << " {\n  label=" << std::quoted(within) << ";\n";
      open.push_back(module);
    }
    for (const Node* node : members) {
      const bool named = node->is_leaf() && !node->path.empty();
      out << "  n" << numbers.at(node) << " [label=\""
          << (named ? node->path.substr(module.empty() ? 0 : module.size() + 1) : node->name()) << results_of(*node)
          << "\\n"
          << to_string(node->site) << "\", shape=" << (node->is_leaf() ? "box" : "ellipse") << "];\n";
    }
  }
  for (; !open.empty(); open.pop_back()) out << "  }\n";
  for (const Node* node : nodes) {
    for (const Edge& input : node->inputs())
      if (input) out << "  n" << numbers.at(input.node.get()) << " -> n" << numbers.at(node) << ";\n";
  }
  out << "}\n";
  return out.str();
}

MemoryReport memory_report(const Tensor& y) {
  std::map<std::pair<std::string, std::string>, MemoryRow> by_line;
  std::unordered_set<const Storage*> counted;
  MemoryReport report;
  for (const Node* node : detail::nodes_behind("memory_report", y)) {
    if (node->is_leaf()) continue;
    const std::string place = to_string(node->site);
    MemoryRow& row = by_line.try_emplace({node->name(), place}, MemoryRow{node->name(), place}).first->second;
    const std::size_t bytes = kept_bytes(*node, counted);
    row.nodes += 1;
    row.bytes += bytes;
    report.total += bytes;
  }
  for (const auto& [line, row] : by_line) report.rows.push_back(row);
  std::ranges::stable_sort(report.rows, std::ranges::greater{}, &MemoryRow::bytes);
  return report;
}

std::map<std::string, std::size_t> kept_by_module(const Tensor& y, const std::vector<Tensor>& elsewhere) {
  std::map<std::string, std::size_t> bytes;
  std::unordered_set<const Storage*> counted;
  for (const Tensor& tensor : elsewhere) counted.insert(&tensor.storage());
  for (const Node* node : detail::nodes_behind("kept_by_module", y)) {
    if (node->is_leaf()) continue;
    for (const SavedTensor* saved = node->first_saved(); saved; saved = saved->next())
      if (saved->defined() && counted.insert(&saved->peek().storage()).second)
        bytes[node->path] += Allocator::block_size(saved->peek().storage().size());
  }
  return bytes;
}

std::string MemoryReport::text() const {
  std::ostringstream out;
  for (const MemoryRow& row : rows) {
    out << std::setw(12) << bytes_text(row.bytes) << "  " << std::setw(4) << row.nodes << " x " << std::left
        << std::setw(24) << row.op << std::right << row.place << '\n';
  }
  out << std::setw(12) << bytes_text(total) << "  kept for backward\n";
  return out.str();
}

}  // namespace whence
