// The training step as a graph between named places and parameters, and its layout as a picture.
// examples/whence/look/viewer/graph.js draws it.
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
    index_t order = 0;  // in which backward visits the nodes; for nodes not visited, one more than the last
    double norm = 0;    // of the gradient
    bool reached = false;
    std::size_t box = 0, group = 0;  // the box that draws it; for a parameter, the box of its module or of its layer
  };
  struct Edge {
    std::string from, to;  // ids; backward goes from `from` to `to`
    double norm = 0;
  };
  // Rows are layers, and the pass goes from left to right. The last lanes of a row hold its parameters.
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

// Returns nodes in the order of the pass, with the loss first.
[[nodiscard]] Graph graph_of(const Inspection& inspection);

}  // namespace whence::look
