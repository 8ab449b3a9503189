// What every walk from a result back to what it was computed from is made of: backward.cpp, ways.cpp, zeros.cpp.
#pragma once

#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "autograd/inspect/probe.h"
#include "autograd/node.h"

namespace whence::detail {

// The gradient that has arrived at a node so far. The first term is moved in; the second makes a sum; later terms add
// in place.
class Arrived {
 public:
  void add(Tensor term, DType sum_dtype);
  const Tensor& gradient() const { return gradient_; }
  Tensor take() { return std::move(gradient_); }

 private:
  Tensor gradient_;
  int terms_ = 0;
};

// What the terms of a node's gradient are added up in.
inline DType sum_dtype(const Node& node) { return node.is_leaf() ? compute_dtype(node.dtype) : node.dtype; }

// Every node that `root` was computed from, and itself, in order of creation.
std::vector<const Node*> nodes_behind(const Node* root);

// The names of nodes by their ids.
using PlaceNames = std::unordered_map<std::uint64_t, std::string>;
PlaceNames names_of(const std::vector<Place>& places);
// Those of the nodes behind `root` that have one.
std::unordered_set<const Node*> nodes_named(const PlaceNames& names, const Node* root);

// Nodes from which one of `targets` can be reached, targets among them.
std::unordered_set<const Node*> leading_to(const Node* root, const std::unordered_set<const Node*>& targets);

// The terms that `node` sends to its inputs where dy has arrived; undefined where an input is not in `wanted` (null:
// all are). Nothing where no input is. `release`: what the op saved is forgotten afterwards. `part`: of that part of
// the op alone (Node::parts), undefined also where it sends nothing.
std::vector<Tensor> terms_for_inputs(Node& node, const Tensor& dy, const std::unordered_set<const Node*>* wanted,
    bool release, std::optional<std::size_t> part = {});

// The numbers to start from: `seed`, or 1 for a scalar. Throws Error when y has no history, or seed is not of its kind.
Tensor checked_seed(const char* op, const Tensor& y, const Tensor& seed);

// While alive, backward through a probe leaves no gradient with its capture: what walks the graph to learn about it
// must not change what was seen.
class ProbesKeepNothing {
 public:
  ProbesKeepNothing() : previous_(probes_keep_gradients) { probes_keep_gradients = false; }
  ~ProbesKeepNothing() { probes_keep_gradients = previous_; }
  ProbesKeepNothing(const ProbesKeepNothing&) = delete;
  ProbesKeepNothing& operator=(const ProbesKeepNothing&) = delete;

 private:
  bool previous_;
};

struct LowerId {
  bool operator()(const Node* a, const Node* b) const { return a->id < b->id; }
};
// Nodes in descending order of creation: each comes when all that uses it has been.
using Ready = std::priority_queue<Node*, std::vector<Node*>, LowerId>;

}  // namespace whence::detail
