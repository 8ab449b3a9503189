// The memory that a graph holds.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "autograd/node.h"

namespace whence {

// What the graph of y saves for backward, by op and source line, largest first. A storage that several ops
// save counts for the first of them.
struct MemoryRow {
  std::string op, place;
  std::size_t nodes = 0, bytes = 0;
};
struct MemoryReport {
  std::vector<MemoryRow> rows;
  std::size_t total = 0;
  std::string text() const;
};
MemoryReport memory_report(const Tensor& y);
// The same by the module whose Scope an op ran in, in bytes of the blocks that hold it; what is in `elsewhere`
// (weights) does not count.
std::map<std::string, std::size_t> kept_by_module(const Tensor& y, const std::vector<Tensor>& elsewhere);

namespace detail {
// Of the storages that `node` keeps and that are not in `counted` yet.
std::size_t kept_bytes(const Node& node, std::unordered_set<const Storage*>& counted);
}  // namespace detail

}  // namespace whence
