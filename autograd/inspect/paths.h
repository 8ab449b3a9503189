// The paths by which a gradient came. The gradient of y with respect to x is a sum over all chains of edges from y to
// x. Chains that pass the same named places in the same order are one path. Its part of the gradient is the result of a
// backward pass in which all other edges are cut. The parts add up to the gradient.
//
//   Capture capture("*");
//   const Tensor loss = ...;
//   for (const GradientPath& path : gradient_paths(loss, {}, capture.place("blocks.0.attention.q"), places))
//     path.steps is {"logits", "position_logit", "positions", "gates", "scores"}: q moved a gate, the gate a position
#pragma once

#include <string>
#include <vector>

#include "autograd/inspect/capture.h"

namespace whence {

// Returns a leaf or an intermediate result as a place. Error if it has no history.
[[nodiscard]] Place place_of(const std::string& name, const Tensor& leaf);

struct GradientPath {
  std::vector<std::string> steps;  // names of the places that were passed, from y down to x
  Tensor gradient;                 // [shape of x]
};

// Returns all paths from y to x, those with fewer steps first; none if y does not depend on x. `seed` and Errors as in
// grad(); also Error if a Capture edits a gradient on the way. The graph is kept.
[[nodiscard]] std::vector<GradientPath> gradient_paths(
    const Tensor& y, const Tensor& seed, const Place& x, const std::vector<Place>& places, Site site = Site::current());

// A step of the backward pass between two places with no other place between them: y's graph with all unnamed nodes
// left out.
struct Passage {
  std::string from, to;  // from "" is from y itself
  double norm = 0;       // norm of the part of the gradient at `to` that came this way
};

// Returns the passages in the order in which backward arrives at `to`.
[[nodiscard]] std::vector<Passage> passages(
    const Tensor& y, const Tensor& seed, const std::vector<Place>& places, Site site = Site::current());

}  // namespace whence
