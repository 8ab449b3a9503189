// A walk from a result back to what it was computed from: nodes in descending order of creation, each once, when all
// has arrived that will. backward.cpp, ways.cpp and zeros.cpp differ in what arrives, a Slot for each result.
#pragma once

#include <queue>
#include <span>
#include <unordered_map>
#include <vector>

#include "autograd/node.h"

namespace whence::detail {

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
