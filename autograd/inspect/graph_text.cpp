#include "autograd/inspect/graph_text.h"

#include <iomanip>
#include <map>
#include <unordered_set>

#include "autograd/inspect/memory_report.h"
#include "autograd/pass.h"

namespace whence {
namespace {

std::map<const Node*, std::size_t> numbered(const std::vector<const Node*>& nodes) {
  std::map<const Node*, std::size_t> numbers;
  for (const Node* node : nodes) numbers.emplace(node, numbers.size() + 1);
  return numbers;
}

// The module that a parameter belongs to, or that ran the op; "" for the root and for what belongs to none.
std::string module_of(const Node& node) {
  if (!node.is_leaf()) return node.path;
  const std::size_t dot = node.path.rfind('.');
  return dot == std::string::npos ? "" : node.path.substr(0, dot);
}

std::string results_of(const Node& node, const char* separator) {
  std::string text;
  for (std::size_t k = 0; k < node.results(); ++k)
    text += to_text(k ? separator : "", node.result(k).dtype, ' ', node.result(k).shape);
  return text;
}

}  // namespace

std::string print_graph(const Tensor& y) {
  const auto nodes = detail::nodes_behind("print_graph", y);
  const auto numbers = numbered(nodes);
  std::unordered_set<const Storage*> counted;
  std::ostringstream out;
  for (const Node* node : nodes) {
    out << '#' << numbers.at(node) << ' ' << node->name() << ' ';
    if (node->is_leaf() && !node->path.empty()) out << node->path << ' ';
    out << results_of(*node, ", ");
    const char* separator = " <- ";
    for (const Edge& input : node->inputs()) {
      if (!input) continue;
      out << std::exchange(separator, ", ") << '#' << numbers.at(input.node.get());
      if (input.node->results() > 1) out << '.' << int{input.result};
    }
    out << "  " << to_string(node->site);
    if (const std::size_t bytes = detail::kept_bytes(*node, counted)) out << "  keeps " << bytes_text(bytes);
    out << '\n';
  }
  return out.str();
}

std::string to_dot(const Tensor& y) {
  const auto nodes = detail::nodes_behind("to_dot", y);
  const auto numbers = numbered(nodes);
  std::ostringstream out;
  out << "digraph whence {\n  rankdir=TB;\n  node [fontname=\"monospace\", fontsize=10];\n";
  std::map<std::string, std::vector<const Node*>> modules;
  for (const Node* node : nodes) modules[module_of(*node)].push_back(node);
  std::vector<std::string> open;  // the modules around what is written, outermost first
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
          << (named ? node->path.substr(module.empty() ? 0 : module.size() + 1) : node->name()) << "\\n"
          << results_of(*node, "\\n") << "\\n"
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

}  // namespace whence
