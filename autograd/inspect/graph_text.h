// A graph as text, and as a picture.
#pragma once

#include <string>

#include "tensor/tensor.h"

namespace whence {

// One line per recorded op that y was computed from, inputs before users:
//   "#3 softmax f64 [2,4] <- #1  train.cpp:84  keeps 64 B"
// "#3.1" is the second result of an op with several. Leaves that are a module's parameters say so:
//   "#1 leaf blocks.0.mlp.in.weight f32 [8,2]  linear.cpp:13"
std::string print_graph(const Tensor& y);

// The same for Graphviz: `dot -Tsvg`. Leaves are boxes. Modules are boxes around their parameters and around what ran
// in their Scope (autograd/inspect/probe.h). Edges run from inputs to users.
std::string to_dot(const Tensor& y);

}  // namespace whence
