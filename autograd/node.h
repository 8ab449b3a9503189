// A node: one recorded operation, with one result or several, or a leaf whose gradient is kept.
//
// Invariants. Ids grow with creation, so an operation's id is larger than those of its inputs: descending ids are a
// topological order. A node owns the nodes of its inputs (not their numbers) and what its op saved. No node points to
// its users. Destruction is iterative: a chain of a million nodes is freed without recursion.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
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

namespace detail {
Tensor in_dtype(const Tensor& x, DType dtype);
// Returns x, or a contiguous copy of it with its history if any other handle or view has its numbers.
Tensor own(const Tensor& x);
}  // namespace detail

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

namespace detail {
// Returns the gradient of a leaf to read it at once: it may be a view, and share numbers with other gradients.
inline const Tensor& gradient_as_held(const Tensor& leaf) { return static_cast<Leaf&>(*node_of(leaf)).gradient; }
}  // namespace detail

}  // namespace whence
