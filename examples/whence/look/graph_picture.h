// The whole step as a graph between named places and parameters, and its picture.
#pragma once

#include <string>
#include <vector>

#include "examples/whence/look/inspection.h"

namespace whence::look {

struct Graph {
  enum class Kind : unsigned char { loss, quantity, parameter };
  struct Node {
    std::string id, name;  // its path; of a quantity its name within attention
    index_t layer = -1;    // -1: of the whole model
    Kind kind = Kind::quantity;
    index_t order = 0;  // in which backward comes by; of all that it has not come by one more than the last
    double norm = 0;    // of the gradient
    bool reached = false;
  };
  struct Edge {
    std::string from, to;  // ids; backward goes from `from` to `to`
    double norm = 0;
  };
  std::vector<Node> nodes;
  std::vector<Edge> edges;
};

// Nodes in the order of the pass, the loss first.
[[nodiscard]] Graph graph_of(const Inspection& inspection);

// As an SVG file: a row for each layer, the pass from left to right, the parameters of one module as one node below.
// What backward has not come by is dashed, red and says NO PATH.
[[nodiscard]] std::string graph_svg(const Graph& graph, const std::string& title);

}  // namespace whence::look
