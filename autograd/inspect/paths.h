// By which paths a gradient came. The gradient of y by x is a sum over all chains of edges of the graph that lead from
// y to x. Those that pass the same named places in the same order are one path. Its part of the gradient is what is
// left when all other edges are cut: backward, run for each path by itself. The parts add up to the gradient.
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

// A leaf, or an intermediate result, as a place. Error when it has no history.
[[nodiscard]] Place place_of(const std::string& name, const Tensor& leaf);

struct GradientPath {
  std::vector<std::string> steps;  // names of the places that were passed, from y down to x
  Tensor gradient;                 // of x's shape
};

// All paths from y to x, those with fewer steps first. `seed` and Errors as in grad(); Error also where a Capture edits
// a gradient on the way. Empty where y does not depend on x. The graph stays as it was.
[[nodiscard]] std::vector<GradientPath> gradient_paths(
    const Tensor& y, const Tensor& seed, const Place& x, const std::vector<Place>& places, Site site = Site::current());

// A step of the backward pass between two places that have no other between them: y's graph with all that is unnamed
// left out.
struct Passage {
  std::string from, to;  // from "" is from y itself
  double norm = 0;       // of the part of the gradient at `to` that came this way
};

// In the order in which backward arrives at `to`.
[[nodiscard]] std::vector<Passage> passages(
    const Tensor& y, const Tensor& seed, const std::vector<Place>& places, Site site = Site::current());

}  // namespace whence
