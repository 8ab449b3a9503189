// Inspectable: what an op can say of itself to whoever looks into a graph (autograd/inspect/). Nothing here changes a
// value or a gradient.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "autograd/stop.h"
#include "tensor/tensor.h"

namespace whence {

class Inspectable : public GraphLink {
 public:
  // The meaning of a derivative by this input that is 0 or next to it: for each of its elements, or once for all of
  // them; empty: the op has no word for it. (autograd/inspect/zeros.h)
  virtual std::vector<Stop> stops(std::size_t) const { return {}; }
  // True if element e of this input goes into element e of the output alone.
  virtual bool by_element(std::size_t) const { return false; }
  // True if each number of the result is made of one of each input: that at its place, stretched as numpy does.
  virtual bool broadcasts() const { return false; }
  // The input that multiplies: the result is a sum of terms, derivative times number, of the other inputs.
  virtual std::optional<std::size_t> factor() const { return std::nullopt; }
  // The op's results on other inputs, of which some may be duals; empty where it cannot. (autograd/inspect/explain.h)
  virtual std::vector<Tensor> again(const std::vector<Tensor>&) const { return {}; }
};

// An op in a node, which answers with the members of these names where the op has them: stops(saved, input) and
// by_element(input), `static constexpr bool broadcasts`, `static constexpr std::size_t factor`.
template <class Node, class Op> class Inspected : public Node {
 public:
  template <class... Of> explicit Inspected(Op&& operation, const Of&... of) : Node(of...), op(std::move(operation)) {}

  std::vector<Stop> stops(std::size_t input) const override {
    if constexpr (requires { op.stops(saved, input); }) return op.stops(saved, input);
    return {};
  }
  bool by_element(std::size_t input) const override {
    if constexpr (requires { op.by_element(input); }) return op.by_element(input);
    return false;
  }
  bool broadcasts() const override {
    if constexpr (requires { Op::broadcasts; }) return Op::broadcasts;
    return false;
  }
  std::optional<std::size_t> factor() const override {
    if constexpr (requires { Op::factor; }) return Op::factor;
    return std::nullopt;
  }

  Op op;
  typename Op::Saved saved;
};

}  // namespace whence
