// A node: one recorded operation, with one result or several, or a leaf whose gradient is kept.
//
// Invariants. Ids grow with creation, so an operation's id is larger than those of its inputs: descending ids are a
// topological order. A node owns the nodes of its inputs (not their numbers) and what its op saved; nothing points
// forward. Destruction is iterative: a chain of a million nodes is freed without recursion.
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

// One result of a node: what a tensor's link names, and where a gradient goes.
struct Edge {
  Ref<Node> node;  // empty: no gradient is needed
  std::uint8_t result = 0;

  explicit operator bool() const { return static_cast<bool>(node); }
  [[nodiscard]] std::uint64_t id() const;  // of the result: no other one of any node has it
};

class Node : public Inspectable {
 public:
  // Of a result, and so of its gradient.
  struct Result {
    Shape shape;
    DType dtype = DType::f32;
  };

  explicit Node(const Site& made_at, std::size_t results = 1);

  const std::uint64_t id;  // of its first result; its others follow
  const Site site;         // the line that called the op
  std::string path;        // the Scope (autograd/observer.h) in which the op ran; of a module's parameter its own path

  std::size_t results() const { return 1 + further_.size(); }
  const Result& result(std::size_t k = 0) const { return k == 0 ? first_ : further_[k - 1]; }
  void made(const Tensor& y, std::uint8_t k = 0);  // y is its result k: notes what y is, and links y to here

  virtual const char* name() const = 0;
  virtual std::span<const Edge> inputs() const = 0;
  // dx[k] = (d results / d input k)' dy for each k with needed[k]. dy has one entry for each result, undefined where no
  // gradient came. Runs op code: may throw.
  virtual void backward(std::span<const Tensor> dy, std::span<const bool> needed, std::span<Tensor> dx) = 0;
  virtual bool is_leaf() const { return false; }
  virtual void release_saved() = 0;  // forgets what backward needs; a later backward through here throws Error

  const SavedTensor* first_saved() const { return first_saved_; }
  void dispose() override;

 protected:
  bool released_ = false;

 private:
  friend class SavedTensor;

  Result first_;
  std::vector<Result> further_;               // mostly none, and then without memory of its own
  const SavedTensor* first_saved_ = nullptr;  // a list through the SavedTensors that live in the op's Saved
  Node* next_disposed_ = nullptr;
};

inline std::uint64_t Edge::id() const { return node->id + result; }
inline Node* node_of(const Tensor& tensor) { return static_cast<Node*>(tensor.link()); }
inline Edge edge_of(const Tensor& tensor) {
  return tensor.link() ? Edge{Ref<Node>(node_of(tensor)), tensor.result_of_link()} : Edge{};
}

namespace detail {
Tensor in_dtype(const Tensor& x, DType dtype);
}  // namespace detail

// A tensor that the user wants the gradient of: a parameter, or an input made with requires_grad().
class Leaf final : public Node {
 public:
  explicit Leaf(const Site& made_at) : Node(made_at) { path.clear(); }
  const char* name() const override { return "leaf"; }
  std::span<const Edge> inputs() const override { return {}; }
  void backward(std::span<const Tensor>, std::span<const bool>, std::span<Tensor>) override {}
  bool is_leaf() const override { return true; }
  void release_saved() override {}

  void accumulate(const Tensor& dx);
  void take(const Tensor& sum) { gradient = sum, owned_ = false; }
  Tensor gradient;  // undefined until the first backward; of a 16-bit leaf f32 as soon as it is a sum

 private:
  bool owned_ = false;  // gradient is a sum made here, which nobody else names: later terms may be added in place
};

}  // namespace whence
