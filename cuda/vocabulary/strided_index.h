// From the number of an element to its offsets in several tensors of one shape and different strides.
#pragma once

#include <cstdint>

#include "tensor/shape.h"

namespace whence {

// i / by. A GPU divides 32-bit numbers several times faster than 64-bit ones. `narrow` says that i, and so
// every quotient, fits in 32 bits.
WHENCE_HD inline index_t quotient(index_t i, index_t by, bool narrow) {
  return narrow ? static_cast<index_t>(static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(by)) : i / by;
}
WHENCE_HD constexpr bool fits_narrow(index_t i) { return i <= 0xFFFFFFFF; }

// N operands of one shape. Axes that all operands step through evenly are merged, so that contiguous operands need no
// division at all. Passed to kernels by value. Elements are numbered in row-major order of the shape.
template <int N> class StridedIndex {
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

  WHENCE_HD index_t count() const { return count_; }

  // Whether the innermost axis can be walked in packs of `size` neighbours. Each operand is contiguous along it with
  // every row at a multiple of `size` elements, or has one number for all of it.
  bool has_packs(index_t size) const {
    if (rank_ == 0 || extent_[rank_ - 1] % size != 0) return false;
    for (int k = 0; k < N; ++k) {
      const index_t inner = step_[rank_ - 1].of[k];
      if (inner != 0 && inner != 1) return false;
      for (int axis = 0; inner == 1 && axis + 1 < rank_; ++axis)
        if (step_[axis].of[k] % size != 0) return false;
    }
    return true;
  }
  // The index of packs instead of elements; offsets stay in elements. REQUIRES: has_packs(size).
  StridedIndex in_packs(index_t size) const {
    StridedIndex result = *this;
    result.count_ /= size;
    result.extent_[rank_ - 1] /= size;
    for (int k = 0; k < N; ++k) result.step_[rank_ - 1].of[k] *= size;
    return result;
  }
  // 1 or 0: see has_packs.
  index_t inner_step(int k) const { return rank_ == 0 ? 0 : step_[rank_ - 1].of[k]; }
  // Each operand is contiguous, or one number for all elements.
  bool is_one_run() const { return rank_ == 0 || (rank_ == 1 && has_packs(1)); }

  WHENCE_HD Offsets operator()(index_t i) const {
    Offsets at;
    for (int axis = rank_ - 1; axis >= 0; --axis) {
      const index_t rest = axis == 0 ? 0 : quotient(i, extent_[axis], fits_narrow(count_)),
                    position = i - rest * extent_[axis];
      for (int k = 0; k < N; ++k) at.of[k] += position * step_[axis].of[k];
      i = rest;
    }
    return at;
  }

 private:
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
