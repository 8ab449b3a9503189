#include "autograd/inspect/memory_report.h"

#include <algorithm>
#include <iomanip>

#include "autograd/pass.h"
#include "autograd/saved.h"
#include "tensor/device/allocator.h"

namespace whence {

std::size_t detail::kept_bytes(const Node& node, std::unordered_set<const Storage*>& counted) {
  std::size_t bytes = 0;
  for (const SavedTensor* saved = node.first_saved(); saved; saved = saved->next())
    if (saved->defined() && counted.insert(&saved->peek().storage()).second) bytes += saved->peek().storage().size();
  return bytes;
}

MemoryReport memory_report(const Tensor& y) {
  std::map<std::pair<std::string, std::string>, MemoryRow> by_line;
  std::unordered_set<const Storage*> counted;
  MemoryReport report;
  for (const Node* node : detail::nodes_behind("memory_report", y)) {
    if (node->is_leaf()) continue;
    const std::string place = to_string(node->site);
    MemoryRow& row = by_line.try_emplace({node->name(), place}, MemoryRow{node->name(), place}).first->second;
    const std::size_t bytes = detail::kept_bytes(*node, counted);
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
