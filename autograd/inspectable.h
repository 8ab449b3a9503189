// Inspectable: what an op can report to the tools that look into a graph (autograd/inspect/). Nothing here changes a
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
  // Returns why the derivative with respect to this input is 0 or almost 0: one Stop for each of its elements, or one
  // for all; empty: the op has no reason to give. (autograd/inspect/zeros.h)
  virtual std::vector<Stop> stops(std::size_t) const { return {}; }
  // True if element e of this input affects only element e of the output.
  virtual bool by_element(std::size_t) const { return false; }
  // True if each number of the result is made of one number of each input, at the same position after broadcasting.
  virtual bool broadcasts() const { return false; }
  // Returns the input that is a multiplier: the result is a sum of derivative times number over the other inputs.
  virtual std::optional<std::size_t> factor() const { return std::nullopt; }
  // Returns the op's results on other inputs, some of which may be duals; empty if it cannot.
  // (autograd/inspect/explain.h)
  virtual std::vector<Tensor> rerun(const std::vector<Tensor>&) const { return {}; }
};

// The node of an op. Its answers come from the op's members of the same names, if it has them: stops(saved, input) and
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
