// Walks over a graph, and the step that backward.cpp and the inspector's walks have in common.
#pragma once

#include <queue>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "autograd/node.h"

namespace whence::detail {

// The gradient that has arrived at a result so far. The first term is moved in; the second makes a sum; later terms add
// in place.
class Arrived {
 public:
  void add(Tensor term, const Edge& edge);
  const Tensor& gradient() const { return gradient_; }  // undefined: nothing has arrived
  Tensor take() { return std::move(gradient_); }

 private:
  Tensor gradient_;
  int terms_ = 0;
};

// Every node that `root` was computed from, and itself, in order of creation.
std::vector<const Node*> nodes_behind(const Node* root);
// Those of y. Throws Error when it has no history.
std::vector<const Node*> nodes_behind(const char* op, const Tensor& y);

using Ids = std::unordered_set<std::uint64_t>;  // of results

// The results that a walk from `root` must come by to reach `targets`, and these.
class Wanted {
 public:
  Wanted(const Node* root, Ids targets);
  bool operator()(const Edge& edge) const { return is_target(edge.id()) || leading_.contains(edge.node.get()); }
  bool is_target(std::uint64_t id) const { return targets_.contains(id); }

 private:
  Ids targets_;
  std::unordered_set<const Node*> leading_;  // some input of theirs is wanted
};

// The terms that `node` sends to its inputs where dy has arrived at its results; undefined where an input is not wanted
// (null: all are). Nothing where none is. `release`: what the op saved is forgotten afterwards.
std::vector<Tensor> terms_for_inputs(Node& node, std::span<const Tensor> dy, const Wanted* wanted, bool release);
// The same where dy has arrived at one result alone.
std::vector<Tensor> terms_for_inputs(const Edge& result, const Tensor& dy, const Wanted& wanted);

// The numbers to start from: `seed`, or 1 for a scalar. Throws Error when y has no history, or seed is not of its kind.
Tensor checked_seed(const char* op, const Tensor& y, const Tensor& seed);

// The gradients of y at the results of these ids that it depends on, where `start` arrives at y. `release`: what ops
// saved is forgotten on the way.
std::unordered_map<std::uint64_t, Tensor> gradients_at(
    const Tensor& y, const Tensor& start, Ids targets, bool create_graph, bool release = false);

// A walk from a result back to what it was computed from: nodes in descending order of creation, each once, when all
// has arrived that will. Walks differ in what arrives, a Slot for each result.
template <class Slot> class Walk {
 public:
  // What has arrived at a result so far; Slot() at first. REQUIRES: the walk has not come by its node yet.
  Slot& arrive(const Edge& edge) {
    const auto [entry, is_new] = arrived_.try_emplace(edge.node.get(), edge.node->results());
    if (is_new) ready_.push(edge.node.get());
    return entry->second[edge.result];
  }

  // visit(node, slots) lets arrive what goes on from a node to its inputs.
  template <class Visit> void run(const Visit& visit) {
    while (!ready_.empty()) {
      Node& node = *ready_.top();
      ready_.pop();
      std::vector<Slot> slots = std::move(arrived_.extract(&node).mapped());
      visit(node, std::span<Slot>(slots));
    }
  }

  // visit(edge, slot): the results of a node one by one, the last first, as if each were all that its op made.
  template <class Visit> void run_by_result(const Visit& visit) {
    run([&](Node& node, std::span<Slot> slots) {
      for (std::size_t k = slots.size(); k-- > 0;)
        visit(Edge{Ref<Node>(&node), static_cast<std::uint8_t>(k)}, slots[k]);
    });
  }

 private:
  struct LowerId {
    bool operator()(const Node* a, const Node* b) const { return a->id < b->id; }
  };
  std::unordered_map<Node*, std::vector<Slot>> arrived_;
  std::priority_queue<Node*, std::vector<Node*>, LowerId> ready_;
};

}  // namespace whence::detail
