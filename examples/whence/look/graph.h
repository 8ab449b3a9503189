// The whole step as a graph between named places and parameters, and where each stands on a picture of it, which
// examples/whence/look/viewer/graph.js draws.
#pragma once

#include <string>
#include <vector>

#include "examples/whence/look/inspection.h"

namespace whence::look {

struct Graph {
  enum class Kind : unsigned char { loss, quantity, parameter };
  struct Node {
    std::string id;      // its path
    index_t layer = -1;  // -1: of the whole model
    Kind kind = Kind::quantity;
    index_t order = 0;  // in which backward comes by; of all that it has not come by one more than the last
    double norm = 0;    // of the gradient
    bool reached = false;
    std::size_t box = 0, group = 0;  // that it is drawn in: of a parameter its module's, or that of all of its layer
  };
  struct Edge {
    std::string from, to;  // ids; backward goes from `from` to `to`
    double norm = 0;
  };
  // Rows are layers, the pass goes from left to right; the parameters of a row stand in its last lanes.
  struct Box {
    std::string id, name;
    index_t layer = -1;
    Kind kind = Kind::quantity;
    std::size_t column = 0, lane = 0;
  };
  std::vector<Node> nodes;
  std::vector<Edge> edges;
  std::vector<Box> boxes;
};

// Nodes in the order of the pass, the loss first.
[[nodiscard]] Graph graph_of(const Inspection& inspection);

}  // namespace whence::look
