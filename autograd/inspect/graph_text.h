// A graph as a picture, and the memory that it holds. All throw Error when y has no history.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace whence {

// Returns the graph for Graphviz: `dot -Tsvg`. Leaves are boxes. Modules are boxes around their parameters and around
// the ops that ran in their Scope (autograd/observer.h). Edges run from inputs to users.
std::string to_dot(const Tensor& y);

// Reports what the graph of y saves for backward, by op and source line, largest first. A storage that several ops save
// is counted for the first of them.
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
// Returns the saved bytes for each module whose Scope the ops ran in, counted as blocks of the allocator. Storages in
// `elsewhere` (weights) are not counted.
std::map<std::string, std::size_t> kept_by_module(const Tensor& y, const std::vector<Tensor>& elsewhere);

}  // namespace whence
