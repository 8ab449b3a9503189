// The graph: nodes, the edges between them, what ops save for backward, and walks over all that.
//
// A node is one recorded operation, with one result or several, or a leaf whose gradient is kept. Ids grow with
// creation, so an operation's id is larger than those of its inputs: descending ids are a topological order. A node owns
// the nodes of its inputs (not their numbers) and what its op saved. No node points to its users. Destruction is
// iterative: a chain of a million nodes is freed without recursion.
#pragma once

#include <atomic>
#include <cstdint>
#include <queue>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "autograd/inspectable.h"
#include "tensor/tensor.h"

namespace whence {

class Node;
class SavedTensor;

// One result of a node: a tensor links to it, and a gradient is sent to it.
struct Edge {
  Ref<Node> node;  // empty: no gradient is needed
  std::uint8_t result = 0;

  explicit operator bool() const { return static_cast<bool>(node); }
  [[nodiscard]] std::uint64_t id() const;  // the result's id, unique among all results of all nodes
};

class Node : public Inspectable {
 public:
  // The shape and dtype of a result, and so of its gradient.
  struct Result {
    Shape shape;
    DType dtype = DType::f32;
  };

  explicit Node(const Site& made_at, std::size_t results = 1);

  const std::uint64_t id;  // id of its first result; the other results have the next ids
  const Site site;         // the line that called the op
  std::string path;        // the Scope (autograd/observer.h) in which the op ran; for a parameter, its path

  std::size_t results() const { return 1 + further_.size(); }
  const Result& result(std::size_t k = 0) const { return k == 0 ? first_ : further_[k - 1]; }
  void made(const Tensor& y, std::uint8_t k = 0);  // makes y result k: notes shape and dtype, links y to this node

  virtual const char* name() const = 0;
  virtual std::span<const Edge> inputs() const = 0;
  // Sets dx[k] = (d results / d input k)' dy for each k with needed[k]. dy has one entry for each result, undefined if
  // no gradient arrived. Runs op code: may throw.
  virtual void backward(std::span<const Tensor> dy, std::span<const bool> needed, std::span<Tensor> dx) = 0;
  virtual bool is_leaf() const { return false; }
  virtual void release_saved() = 0;  // frees what backward needs; a later backward through this node throws Error

  const SavedTensor* first_saved() const { return first_saved_; }
  void dispose() override;

 protected:
  bool released_ = false;

 private:
  friend class SavedTensor;

  Result first_;
  std::vector<Result> further_;               // empty for most nodes, and then allocates nothing
  const SavedTensor* first_saved_ = nullptr;  // a linked list of the SavedTensors in the op's Saved
  Node* next_disposed_ = nullptr;
};

inline std::uint64_t Edge::id() const { return node->id + result; }
inline Node* node_of(const Tensor& tensor) { return static_cast<Node*>(tensor.link()); }
inline Edge edge_of(const Tensor& tensor) {
  return tensor.link() ? Edge{Ref<Node>(node_of(tensor)), tensor.result_of_link()} : Edge{};
}

// A tensor whose gradient the user wants: a parameter, or an input made with requires_grad().
class Leaf final : public Node {
 public:
  explicit Leaf(const Site& made_at) : Node(made_at) { path.clear(); }
  const char* name() const override { return "leaf"; }
  std::span<const Edge> inputs() const override { return {}; }
  void backward(std::span<const Tensor>, std::span<const bool>, std::span<Tensor>) override {}
  bool is_leaf() const override { return true; }
  void release_saved() override {}

  void accumulate(const Tensor& dx);
  Tensor gradient;      // undefined before the first backward; for a 16-bit leaf f32 once it is a sum
  bool is_own = false;  // false: as it arrived, maybe with the numbers of other gradients, until a caller asks for it
};

// Note [Saved tensors and versions]
// Backward needs some of the numbers that forward saw. An op declares them as members of its struct Saved, and assigns
// them in forward:
//     saved.x = x;               an input, or something computed from inputs
//     saved.y.output(y);         the op's own result; output(y, k): one of several
//     saved.x.as(rows, x);       an input's numbers in another layout or shape
// A SavedTensor holds the detached tensor and its storage's version at that time. Because it is detached, it keeps no
// graph alive, and an op that saves its own output makes no cycle. get() throws if the storage was written since, and
// names both places: the derivative would belong to other numbers than the value. When nothing is recorded, assignment
// does nothing. Of several assignments the last one counts.
class SavedTensor {
 public:
  SavedTensor() = default;
  SavedTensor(const SavedTensor&) = delete;
  SavedTensor& operator=(const SavedTensor&) = delete;

  void operator=(const Tensor& value) { save(value, edge_of(value), false); }
  void output(const Tensor& value, std::uint8_t result = 0) { save(value, {{}, result}, true); }
  // Saves `value` with the history of `source`. While backward is recorded, get() returns it in the shape of `source`.
  void as(const Tensor& value, const Tensor& source) { save(value, edge_of(source), false); }

  // Returns the saved numbers; while backward is recorded (create_graph), with their history. Error if overwritten.
  Tensor get() const;
  bool defined() const { return value_.defined(); }
  const Tensor& peek() const { return value_; }  // for reports: no check, no history
  const SavedTensor* next() const { return next_; }
  void release() { value_ = {}, source_ = {}; }

 private:
  void save(const Tensor& value, const Edge& source, bool is_output);

  Tensor value_;
  Edge source_;
  std::uint64_t version_ = 0;
  bool is_output_ = false, listed_ = false;  // listed: the node's list contains it already
  const SavedTensor* next_ = nullptr;
};

namespace detail {

Tensor in_dtype(const Tensor& x, DType dtype);
// Returns x, or a contiguous copy of it with its history if any other handle or view has its numbers.
Tensor own(const Tensor& x);
// Returns the gradient of a leaf to read it at once: it may be a view, and share numbers with other gradients.
inline const Tensor& gradient_as_held(const Tensor& leaf) { return static_cast<Leaf&>(*node_of(leaf)).gradient; }

// ---- Walks

// Returns the nodes that y was computed from, in order of creation. Error if y has no history.
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

  bool done() const { return ready_.empty(); }
  // Visits the next node: returns it with what has arrived there. What it sends on is passed to arrive().
  std::pair<Node*, std::vector<Slot>> next() {
    Node* const node = ready_.top();
    ready_.pop();
    return {node, std::move(arrived_.extract(node).mapped())};
  }

  // Calls visit(edge, slot) for the results of a node one by one, the last first, as if each were its op's only result.
  template <class Visit> void run_by_result(const Visit& visit) {
    while (!done()) {
      auto [node, slots] = next();
      for (std::size_t k = slots.size(); k-- > 0;) visit(Edge{Ref<Node>(node), static_cast<std::uint8_t>(k)}, slots[k]);
    }
  }

 private:
  struct LowerId {
    bool operator()(const Node* a, const Node* b) const { return a->id < b->id; }
  };
  std::unordered_map<Node*, std::vector<Slot>> arrived_;
  std::priority_queue<Node*, std::vector<Node*>, LowerId> ready_;
};

// One node's backward, for the backward pass (backward.cpp) and for walks that take it apart. Returns the terms that
// `node` sends to its inputs, given the gradients dy of its results. A term is undefined if its input is not wanted
// (null: all are); no terms if no input is wanted. `release`: frees what the op saved.
std::vector<Tensor> terms_for_inputs(Node& node, std::span<const Tensor> dy, const Wanted* wanted, bool release);
// The same for a gradient at one result only.
std::vector<Tensor> terms_for_inputs(const Edge& result, const Tensor& dy, const Wanted& wanted);

// Returns the seed: `seed`, or 1 for a scalar. Error if y has no history, or the seed does not fit y.
Tensor checked_seed(const char* op, const Tensor& y, const Tensor& seed);

}  // namespace detail
}  // namespace whence
