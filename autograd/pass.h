// Walks over a graph, and the backward step shared by backward.cpp and the inspector's walks.
#pragma once

#include <queue>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "autograd/node.h"

namespace whence::detail {

// The gradient that has arrived at a result so far. The first term is moved in; the second makes a sum; later terms are
// added in place.
class Arrived {
 public:
  void add(Tensor term, const Edge& edge);
  const Tensor& gradient() const { return gradient_; }  // undefined if nothing has arrived
  Tensor take() { return std::move(gradient_); }

 private:
  Tensor gradient_;
  int terms_ = 0;
};

// Returns `root` and every node that it was computed from, in order of creation.
std::vector<const Node*> nodes_behind(const Node* root);
// Returns the nodes behind y. Error if y has no history.
std::vector<const Node*> nodes_behind(const char* op, const Tensor& y);

using Ids = std::unordered_set<std::uint64_t>;  // ids of results

// The results that a walk from `root` must visit to reach `targets`, targets included.
class Wanted {
 public:
  Wanted(const Node* root, Ids targets);
  bool operator()(const Edge& edge) const { return is_target(edge.id()) || leading_.contains(edge.node.get()); }
  bool is_target(std::uint64_t id) const { return targets_.contains(id); }

 private:
  Ids targets_;
  std::unordered_set<const Node*> leading_;  // nodes with an input that is wanted
};

// Returns the terms that `node` sends to its inputs, given the gradients dy of its results. A term is undefined if its
// input is not wanted (null: all are). Returns no terms if no input is wanted. `release`: frees what the op saved.
std::vector<Tensor> terms_for_inputs(Node& node, std::span<const Tensor> dy, const Wanted* wanted, bool release);
// The same for a gradient at one result only.
std::vector<Tensor> terms_for_inputs(const Edge& result, const Tensor& dy, const Wanted& wanted);

// Returns the seed: `seed`, or 1 for a scalar. Error if y has no history, or the seed does not fit y.
Tensor checked_seed(const char* op, const Tensor& y, const Tensor& seed);

// Returns the gradients of y at the results with these ids that it depends on, starting with `start` at y. `release`:
// frees what ops saved on the way.
std::unordered_map<std::uint64_t, Tensor> gradients_at(
    const Tensor& y, const Tensor& start, Ids targets, bool create_graph, bool release = false);

// A walk from a result back to the nodes it was computed from. It visits each node once, in descending order of
// creation, when everything has arrived there. Walks differ in what arrives: one Slot for each result.
template <class Slot> class Walk {
 public:
  // Returns what has arrived at a result so far; Slot() at first. REQUIRES: the walk has not visited its node yet.
  Slot& arrive(const Edge& edge) {
    const auto [entry, is_new] = arrived_.try_emplace(edge.node.get(), edge.node->results());
    if (is_new) ready_.push(edge.node.get());
    return entry->second[edge.result];
  }

  // Calls visit(node, slots), which passes what a node sends to its inputs to arrive().
  template <class Visit> void run(const Visit& visit) {
    while (!ready_.empty()) {
      Node& node = *ready_.top();
      ready_.pop();
      std::vector<Slot> slots = std::move(arrived_.extract(&node).mapped());
      visit(node, std::span<Slot>(slots));
    }
  }

  // Calls visit(edge, slot) for the results of a node one by one, the last first, as if each were its op's only result.
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
