// A tensor seen with fewer axes, for reductions on every device. Axes of extent 1 are dropped, and neighbours of one
// kind become one where the strides allow.
#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace whence {

struct MergedAxes {
  Tensor x;                   // the same numbers
  std::vector<bool> reduced;  // for each axis left

  // The last axis to reduce; -1: none.
  int last() const {
    int axis = static_cast<int>(reduced.size()) - 1;
    while (axis >= 0 && !reduced[static_cast<std::size_t>(axis)]) --axis;
    return axis;
  }
};

// `reduced` says for each axis of x which kind it is.
inline MergedAxes merge_axes(const Tensor& x, const std::vector<bool>& reduced) {
  Shape shape;
  Strides strides;
  std::vector<bool> kinds;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const index_t extent = x.shape()[axis], stride = x.strides()[axis];
    const bool kind = reduced[static_cast<std::size_t>(axis)];
    if (extent == 1) continue;
    if (!kinds.empty() && kinds.back() == kind && strides[-1] == stride * extent) {
      shape[-1] *= extent;
      strides[-1] = stride;
    } else {
      shape.push_back(extent), strides.push_back(stride), kinds.push_back(kind);
    }
  }
  return {x.view(shape, strides), kinds};
}

}  // namespace whence
