// A graph as text, as a picture, and the memory that it holds. All throw Error when y has no history.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace whence {

// One line per recorded op that y was computed from, inputs before users:
//   "#3 softmax f64 [2,4] <- #1  train.cpp:84  keeps 64 B"
// "#3.1" is the second result of an op with several. Leaves that are a module's parameters say so:
//   "#1 leaf blocks.0.mlp.in.weight f32 [8,2]  layers.cpp:24"
std::string print_graph(const Tensor& y);

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
