// Explains one number. A number of a forward pass: from the numbers that its op read, each with its derivative, and
// those from theirs, down to named places and parameters. A number of a gradient: from the gradients of the next named
// places towards the result, each times its derivative with respect to this number. Nothing here knows a single op.
// Contributions come from the op's own backward; for gradients and constants, dual numbers are run through the op
// again. (Constants are looked for in ops that declare that they broadcast, autograd/op.h.)
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autograd/inspect/observers.h"
#include "autograd/inspect/paths.h"

namespace whence {

// A number that the explained number depends on.
struct Contribution {
  std::string name;  // name of the place or leaf; empty for a number in between
  Shape at;          // its position
  double value = 0;
  double derivative = 1;           // derivative of the number above it in the tree, with respect to this one
  std::string op, line;            // the op that made it, and its line; empty: a constant or a leaf
  std::vector<Contribution> from;  // largest contribution first
  std::size_t more = 0;            // number of operands not listed,
  double rest = 0;                 // and their contribution: the sum of derivative times value
};

// Explains element `at` of `place`. Stops at the other places, at leaves and at constants. Steps that only move a
// number (views, casts) are left out. For a product, the terms of one factor are listed with the other factor as their
// derivative. At most `most` operands are listed for each op; the others are summed. Error if the place is not on the
// tape, or `at` is not a position in it.
[[nodiscard]] Contribution explain_value(
    const Tape& tape, const Place& place, const Shape& at, const std::vector<Place>& places, std::size_t most = 8);

struct GradientTerm {
  std::string name;  // the next place towards the result
  Shape at;
  double gradient = 0;    // gradient of the result with respect to that place
  double derivative = 0;  // derivative of that place with respect to the explained number
};
struct ExplainedGradient {
  double gradient = 0;              // computed by backward
  std::vector<GradientTerm> terms;  // largest first
  std::size_t more = 0;
  double rest = 0, sum = 0;  // rest: sum of the terms not listed; sum: of all terms
};

// Explains the gradient of y, a scalar, with respect to element `at` of `place`.
[[nodiscard]] ExplainedGradient explain_gradient(const Tape& tape, const Tensor& y, const Place& place, const Shape& at,
    const std::vector<Place>& places, std::size_t most = 8);

// Moves `place` by `tangent` (one number for each element, row-major, else Error), and returns the tangents of the next
// places towards the result, by name. Paths end at the first place that they reach.
[[nodiscard]] std::map<std::string, std::vector<double>> moved_by(
    const Tape& tape, const Place& place, const std::vector<double>& tangent, const std::vector<Place>& places);

}  // namespace whence
