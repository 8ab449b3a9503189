// Walks the elements of one shape through several tensors of different strides, in runs that are few and long.
#pragma once

#include <algorithm>
#include <array>

#include "tensor/parallel.h"

namespace whence {

// N operands of one shape, seen through merged axes (merged_axes.h). Elements are numbered in row-major order of the
// shape.
template <std::size_t N> class StridedLoop {
 public:
  using Offsets = std::array<index_t, N>;

  StridedLoop(const Shape& shape, const std::array<Strides, N>& strides)
      : StridedLoop(shape, shape.rank(), [&](std::size_t k, int axis, index_t) { return strides[k][axis]; }) {}
  // Over the leading axes; stride_of(operand, axis, elements of the axes after it).
  template <class StrideOf> StridedLoop(const Shape& shape, int axes, const StrideOf& stride_of) {
    for (int axis = axes - 1; axis >= 0; --axis) {
      const index_t extent = shape[axis];
      if (extent != 1) {
        Offsets step;
        for (std::size_t k = 0; k < N; ++k) step[k] = stride_of(k, axis, count_);
        bool even = rank_ > 0;
        for (std::size_t k = 0; k < N && even; ++k) even = step[k] == last().step[k] * last().extent;
        even ? void(last().extent *= extent) : void(axes_[static_cast<std::size_t>(rank_++)] = {extent, step});
      }
      count_ *= extent;
    }
    if (rank_ == 0) axes_[0] = {1, {}}, rank_ = 1;
  }

  index_t count() const { return count_; }
  // Returns operand k's stride within a run. A run is the last axis after merging.
  index_t inner_stride(std::size_t k) const { return axes_[0].step[k]; }

  // Calls body(offsets, n) for consecutive runs along the last axis that together cover the elements [begin, end).
  template <class Body> void run(index_t begin, index_t end, const Body& body) const {
    if (begin >= end) return;
    const Axis& inner = axes_[0];
    std::array<index_t, max_rank> position;
    index_t column = begin;
    Offsets row{};
    if (rank_ > 1) column = begin % inner.extent, row = seek(begin / inner.extent, position);
    while (true) {
      const index_t n = std::min(inner.extent - column, end - begin);
      Offsets start = row;
      for (std::size_t k = 0; k < N; ++k) start[k] += column * inner.step[k];
      body(start, n);
      begin += n;
      if (begin >= end) return;
      column = 0;
      next_row(row, position);
    }
  }

  // The same for all elements, in parallel over chunks of `grain` of them.
  template <class Body> void parallel_run(index_t grain, const Body& body) const {
    parallel_for(count_, grain, [&](index_t begin, index_t end) { run(begin, end, body); });
  }

 private:
  struct Axis {
    index_t extent;
    Offsets step;
  };
  using Position = std::array<index_t, max_rank>;
  Axis& last() { return axes_[static_cast<std::size_t>(rank_ - 1)]; }

  // Returns the offsets of the first element of row `row`, and sets position[axis] for the outer axes.
  Offsets seek(index_t row, Position& position) const {
    Offsets offsets{};
    for (std::size_t axis = 1; axis < static_cast<std::size_t>(rank_); ++axis) {
      position[axis] = row % axes_[axis].extent;
      row /= axes_[axis].extent;
      for (std::size_t k = 0; k < N; ++k) offsets[k] += position[axis] * axes_[axis].step[k];
    }
    return offsets;
  }

  void next_row(Offsets& row, Position& position) const {
    for (std::size_t axis = 1; axis < static_cast<std::size_t>(rank_); ++axis) {
      const Axis& outer = axes_[axis];
      for (std::size_t k = 0; k < N; ++k) row[k] += outer.step[k];
      if (++position[axis] < outer.extent) return;
      for (std::size_t k = 0; k < N; ++k) row[k] -= outer.extent * outer.step[k];
      position[axis] = 0;
    }
  }

  std::array<Axis, max_rank> axes_;  // the innermost first
  int rank_ = 0;
  index_t count_ = 1;
};

}  // namespace whence
