// One number, worked out. A number of a pass: from the numbers that its op read, each with the derivative by it, and
// those from what they were made of, down to named places and parameters. A number of a gradient: from the gradients of
// the next named places on the way to the result, each times how much it moves with this number. Nothing here knows
// what an op computes: contributions come from its own backward and, for gradients and constants, from dual numbers put
// through it again. (Constants are looked for in ops that say that they broadcast, autograd/node.h.)
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autograd/inspect/paths.h"
#include "autograd/inspect/tape.h"

namespace whence {

// A number on the way to the one that is explained.
struct Contribution {
  std::string name;  // of the place, or of the leaf; empty: in between
  Shape at;          // its position
  double value = 0;
  double derivative = 1;           // of the number that it went into, by this one
  std::string op, line;            // what made it, and where; empty: a constant or a leaf
  std::vector<Contribution> from;  // largest contribution first
  std::size_t more = 0;            // how many further operands there are,
  double rest = 0;                 // and what they contribute: the sum of derivative times value
};

// Element `at` of what passed at `place`. Stops at the other places, at leaves and at constants; steps that only move a
// number (views, casts) are left out. Of a product one factor's terms are listed, the other is their derivative. At
// most `most` operands are listed of each op, and all others summed. Throws Error
// when the place is not on the tape, or `at` is no position of it.
[[nodiscard]] Contribution explain_value(
    const Tape& tape, const Place& place, const Shape& at, const std::vector<Place>& places, std::size_t most = 8);

struct GradientTerm {
  std::string name;  // of the place where the result feels the number next
  Shape at;
  double gradient = 0;    // of the result by that place
  double derivative = 0;  // of that place by the number that is explained
};
struct ExplainedGradient {
  double gradient = 0;              // as backward has it
  std::vector<GradientTerm> terms;  // largest first
  std::size_t more = 0;
  double rest = 0, sum = 0;  // of the terms that are not listed; of all
};

// The gradient of y, a scalar, by element `at` of what passed at `place`.
[[nodiscard]] ExplainedGradient explain_gradient(const Tape& tape, const Tensor& y, const Place& place, const Shape& at,
    const std::vector<Place>& places, std::size_t most = 8);

// How the next places on the way move when what passed at `place` does, by `tangent` (a number for each element,
// row-major, else Error): the tangent of each, by its name. Paths that pass another place end there.
[[nodiscard]] std::map<std::string, std::vector<double>> moved_by(
    const Tape& tape, const Place& place, const std::vector<double>& tangent, const std::vector<Place>& places);

}  // namespace whence
