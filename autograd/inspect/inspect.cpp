#include "autograd/inspect/inspect.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <map>
#include <unordered_set>

#include "autograd/op.h"
#include "autograd/pass.h"
#include "tensor/device/allocator.h"

namespace whence {
namespace {

// Every node from which y was computed, in order of creation.
std::vector<const Node*> nodes_behind(const char* op, const Tensor& y) {
  if (!y.link()) fail(op, "a ", y.shape(), " without history given; a result of recorded ops required");
  return detail::nodes_behind(node_of(y));
}

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

// Bytes of the storages that `node` keeps and that are not in `counted` yet.
std::size_t kept_bytes(const Node& node, std::unordered_set<const Storage*>& counted) {
  std::size_t bytes = 0;
  for (const SavedTensor* saved = node.first_saved(); saved; saved = saved->next())
    if (saved->defined() && counted.insert(&saved->peek().storage()).second) bytes += saved->peek().storage().size();
  return bytes;
}

std::string range_of(const Tensor& x) {
  if (!is_floating(x.dtype())) return to_text(x.dtype(), " ", x.shape());
  double low = INFINITY, high = -INFINITY;
  std::size_t bad = 0;
  for (const double value : x.to_vector())
    if (!std::isfinite(value))
      ++bad;
    else
      low = std::min(low, value), high = std::max(high, value);
  return to_text(
      x.dtype(), " ", x.shape(), " in [", low, ", ", high, "]", bad ? to_text(" with ", bad, " not finite") : "");
}

}  // namespace

std::string print_graph(const Tensor& y) {
  const auto nodes = nodes_behind("print_graph", y);
  const auto numbers = numbered(nodes);
  std::unordered_set<const Storage*> counted;
  std::ostringstream out;
  for (const Node* node : nodes) {
    out << '#' << numbers.at(node) << ' ' << node->name() << ' ';
    if (node->is_leaf() && !node->path.empty()) out << node->path << ' ';
    out << node->dtype << ' ' << node->shape;
    const char* separator = " <- ";
    for (const Ref<Node>& input : node->inputs())
      if (input) out << std::exchange(separator, ", ") << '#' << numbers.at(input.get());
    out << "  " << to_string(node->site);
    if (const std::size_t bytes = kept_bytes(*node, counted)) out << "  keeps " << bytes_text(bytes);
    out << '\n';
  }
  return out.str();
}

std::string to_dot(const Tensor& y) {
  const auto nodes = nodes_behind("to_dot", y);
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
          << node->dtype << ' ' << node->shape << "\\n"
          << to_string(node->site) << "\", shape=" << (node->is_leaf() ? "box" : "ellipse") << "];\n";
    }
  }
  for (; !open.empty(); open.pop_back()) out << "  }\n";
  for (const Node* node : nodes) {
    for (const Ref<Node>& input : node->inputs())
      if (input) out << "  n" << numbers.at(input.get()) << " -> n" << numbers.at(node) << ";\n";
  }
  out << "}\n";
  return out.str();
}

MemoryReport memory_report(const Tensor& y) {
  std::map<std::pair<std::string, std::string>, MemoryRow> by_line;
  std::unordered_set<const Storage*> counted;
  MemoryReport report;
  for (const Node* node : nodes_behind("memory_report", y)) {
    if (node->is_leaf()) continue;
    MemoryRow& row = by_line[{node->name(), to_string(node->site)}];
    const std::size_t bytes = kept_bytes(*node, counted);
    row.nodes += 1;
    row.bytes += bytes;
    report.total += bytes;
  }
  for (auto& [key, row] : by_line) {
    row.op = key.first;
    row.place = key.second;
    report.rows.push_back(row);
  }
  std::stable_sort(
      report.rows.begin(), report.rows.end(), [](const MemoryRow& a, const MemoryRow& b) { return a.bytes > b.bytes; });
  return report;
}

std::map<std::string, std::size_t> kept_by_module(const Tensor& y, const std::vector<Tensor>& elsewhere) {
  std::map<std::string, std::size_t> bytes;
  std::unordered_set<const Storage*> counted;
  for (const Tensor& tensor : elsewhere) counted.insert(&tensor.storage());
  for (const Node* node : nodes_behind("kept_by_module", y)) {
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

CheckFinite::CheckFinite() : previous_(detail::check_finite) { detail::check_finite = true; }
CheckFinite::~CheckFinite() { detail::check_finite = previous_; }

void detail::require_finite(const char* op, const char* pass, const Tensor& result, std::span<const Tensor> inputs) {
  if (!result.defined() || !is_floating(result.dtype())) return;
  const std::vector<double> values = result.to_vector();
  const auto bad = std::find_if(values.begin(), values.end(), [](double value) { return !std::isfinite(value); });
  if (bad == values.end()) return;
  std::string ranges;
  for (std::size_t k = 0; k < inputs.size(); ++k)
    if (inputs[k].defined()) ranges += to_text(k ? "; " : "", "input ", k, " is ", range_of(inputs[k]));
  throw NotFinite(error_at_call_site(op, to_text("its ", pass, " made ", *bad, " at element ", bad - values.begin(),
                                             " of ", result.shape(), "; finite numbers required; ", ranges)));
}

}  // namespace whence
