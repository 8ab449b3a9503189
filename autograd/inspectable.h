// Inspectable: what an op can report to the tools that look into a graph (autograd/inspect/). Nothing here changes a
// value or a gradient.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace whence {

// Why an op's derivative is 0. autograd/inspect/zeros.h follows it through a graph.
// The order matters: if an entry is a sum of terms that are 0 for several reasons, the first counts. Reasons that a
// change takes away come first; a mask hands on a reason only if there is no other.
enum class Stop : unsigned char {
  nothing,    // the gradient passes
  saturated,  // a sigmoid or similar, far from 0: almost nothing passes
  leaking,    // leaky_relu below 0: a hundredth passes
  flat,       // interpolation between equal rows: a table that is zero has no slope
  whole,      // interpolation at an integer position: floor and ceiling are one row
  clamped,    // at a bound: p_max, the end of a table
  dead,       // relu below 0
  rounded,    // a softmax whose weight rounds to 0 or to 1
  no_target,  // no loss is computed there
  unread,     // a row of a table that nothing reads
  zero,       // a derivative of 0 for which its op gives no reason
  cancelled,  // its terms add up to 0: softmax ignores what shifts a whole row
  sole,       // a softmax over one key: no other can take some of its weight
  masked,     // a mask overwrites it
  frozen,     // a parameter that is not trained
  constant,   // made of constants: no gradient is computed
  no_path     // the result does not depend on it
};
inline constexpr int stop_count = static_cast<int>(Stop::no_path) + 1;

// Returns why a softmax over `keys` keys stops the gradient of an entry with this weight, where it does.
constexpr Stop stop_of_weight(double weight, long keys) {
  return keys == 1 ? Stop::sole : weight < 1e-30 || weight > 1 - 1e-6 ? Stop::rounded : Stop::nothing;
}

// True for reasons that make a gradient small instead of 0.
constexpr bool vanishes(Stop stop) { return stop == Stop::saturated || stop == Stop::leaking; }

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
