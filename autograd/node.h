// A node: one recorded operation, or a leaf whose gradient is kept.
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

#include "autograd/inspect/stop.h"
#include "tensor/tensor.h"

namespace whence {

class SavedTensor;

class Node : public GraphLink {
 public:
  explicit Node(const Site& made_at);

  const std::uint64_t id;
  const Site site;   // the line that called the op
  std::string path;  // the Scope (autograd/inspect/probe.h) in which the op ran; of a module's parameter its own path
  Shape shape;       // of the op's output, and so of its gradient
  DType dtype = DType::f32;

  virtual const char* name() const = 0;
  virtual std::span<const Ref<Node>> inputs() const = 0;  // empty Ref: that input needs no gradient
  // gradients[k] = (d output / d input k)' dy for each k with needed[k]. Runs op code: may throw.
  virtual void backward(const Tensor& dy, std::span<const bool> needed, std::span<Tensor> gradients) = 0;
  virtual bool is_leaf() const { return false; }
  // Names of the parts that the op is a sum of, where one may want to see them apart; mostly none. (autograd/inspect/ways.h)
  virtual std::vector<std::string> parts() const { return {}; }
  // backward of one of them; undefined gradients are 0.
  virtual void backward_of_part(std::size_t, const Tensor&, std::span<const bool>, std::span<Tensor>) {}
  // What it means where the derivative by an input is 0 or next to it: for each of its elements, or once for all of
  // them; empty: the op has no word for it. (autograd/inspect/zeros.h)
  virtual std::vector<Stop> stops(std::size_t) const { return {}; }
  // Whether element e of this input goes into element e of the output alone.
  virtual bool by_element(std::size_t) const { return false; }
  // The op once more on other inputs, of which some may be duals; undefined where it cannot. (autograd/inspect/explain.h)
  virtual Tensor again(const std::vector<Tensor>&) const { return {}; }
  virtual void release_saved() = 0;  // forgets what backward needs; a later backward through here is an error
  bool released() const { return released_; }

  const SavedTensor* first_saved() const { return first_saved_; }
  void dispose() override;

 protected:
  bool released_ = false;

 private:
  friend class SavedTensor;
  static std::uint64_t next_id();

  const SavedTensor* first_saved_ = nullptr;  // a list through the SavedTensors that live in the op's Saved
  Node* next_disposed_ = nullptr;
};

inline Node* node_of(const Tensor& tensor) { return static_cast<Node*>(tensor.link()); }

namespace detail {
Tensor in_dtype(const Tensor& x, DType dtype);
}  // namespace detail

// A tensor that the user wants the gradient of: a parameter, or an input made with requires_grad().
class Leaf final : public Node {
 public:
  explicit Leaf(const Site& made_at) : Node(made_at) { path.clear(); }
  const char* name() const override { return "leaf"; }
  std::span<const Ref<Node>> inputs() const override { return {}; }
  void backward(const Tensor&, std::span<const bool>, std::span<Tensor>) override {}
  bool is_leaf() const override { return true; }
  void release_saved() override {}

  void accumulate(const Tensor& dx);
  void take(const Tensor& sum) { gradient = sum, owned_ = false; }
  Tensor gradient;  // undefined until the first backward; of a 16-bit leaf f32 as soon as it is a sum

 private:
  bool owned_ = false;  // gradient is a sum made here, which nobody else names: later terms may be added in place
};

}  // namespace whence
