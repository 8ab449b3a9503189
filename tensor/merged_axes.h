// Merges axes that every operand steps through evenly: contiguous or broadcast operands end up with one or two.
#pragma once

#include <array>
#include <optional>

#include "tensor/shape.h"

namespace whence {

// One shape, and how each of N operands steps through it.
template <std::size_t N> struct Axes {
  Shape shape;
  std::array<Strides, N> strides;
};

// Returns the same elements in the same order. Axes of extent 1 are dropped. Two neighbouring axes become one if each
// operand's outer stride equals the inner stride times the inner extent.
template <std::size_t N> Axes<N> merged(const Shape& shape, const std::array<Strides, N>& strides) {
  Axes<N> result;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == 1) continue;
    bool even = result.shape.rank() > 0;
    for (std::size_t k = 0; k < N; ++k) even = even && result.strides[k][-1] == strides[k][axis] * shape[axis];
    if (even) {
      result.shape[-1] *= shape[axis];
    } else {
      result.shape.push_back(shape[axis]);
      for (Strides& to : result.strides) to.push_back(0);
    }
    for (std::size_t k = 0; k < N; ++k) result.strides[k][-1] = strides[k][axis];
  }
  return result;
}

// Returns the step from each element to the next, 0 for a single one; nothing if there is more than one step.
inline std::optional<index_t> even_step(const Shape& shape, const Strides& strides) {
  const Axes<1> axes = merged<1>(shape, {strides});
  if (axes.shape.rank() > 1) return std::nullopt;
  return axes.shape.rank() == 0 ? 0 : axes.strides[0][0];
}

}  // namespace whence
