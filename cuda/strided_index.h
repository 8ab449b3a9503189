// From the number of an element to its offsets in several tensors of one shape and different strides.
#pragma once

#include <cstdint>

#include "tensor/shape.h"

namespace whence {

// N operands of one shape. Axes that all operands step through evenly are merged, so that contiguous operands cost no division at all.
// Passed to kernels by value. Elements are numbered in row-major order of the shape.
template <int N>
class StridedIndex {
 public:
  struct Offsets {
    index_t of[N] = {};
    WHENCE_HD index_t operator[](int k) const { return of[k]; }
  };

  StridedIndex(const Shape& shape, const Strides (&strides)[N]) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      count_ *= shape[axis];
      if (shape[axis] == 1) continue;
      Offsets step;
      for (int k = 0; k < N; ++k) step.of[k] = strides[k][axis];
      append(shape[axis], step);
    }
  }

  index_t count() const { return count_; }

  WHENCE_HD Offsets operator()(index_t i) const {
    Offsets at;
    for (int axis = rank_ - 1; axis >= 0; --axis) {
      const index_t rest = axis == 0 ? 0 : quotient(i, extent_[axis]), position = i - rest * extent_[axis];
      for (int k = 0; k < N; ++k) at.of[k] += position * step_[axis].of[k];
      i = rest;
    }
    return at;
  }

 private:
  // A GPU divides 32-bit numbers several times faster than 64-bit ones.
  WHENCE_HD index_t quotient(index_t i, index_t extent) const {
    if (count_ <= 0xFFFFFFFF) return static_cast<index_t>(static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(extent));
    return i / extent;
  }

  void append(index_t extent, const Offsets& step) {
    bool even = rank_ > 0;
    for (int k = 0; even && k < N; ++k) even = step_[rank_ - 1].of[k] == step.of[k] * extent;
    if (even) {
      extent_[rank_ - 1] *= extent;
      step_[rank_ - 1] = step;
    } else {
      extent_[rank_] = extent;
      step_[rank_++] = step;
    }
  }

  index_t extent_[max_rank] = {}, count_ = 1;
  Offsets step_[max_rank];
  int rank_ = 0;
};

}  // namespace whence
