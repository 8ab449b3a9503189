// Walks the elements of one shape through several tensors of different strides, in runs that are few and long.
#pragma once

#include <algorithm>

#include "tensor/merged_axes.h"
#include "tensor/parallel.h"

namespace whence {

// N operands of one shape, seen through merged axes. Elements are numbered in row-major order of the shape.
template <int N> class StridedLoop {
 public:
  using Offsets = std::array<index_t, N>;

  StridedLoop(const Shape& shape, const std::array<Strides, N>& strides) {
    const Axes<N> axes = merged(shape, strides);
    for (int axis = 0; axis < axes.shape.rank(); ++axis, ++rank_) {
      axes_[at(axis)].extent = axes.shape[axis];
      for (std::size_t k = 0; k < N; ++k) axes_[at(axis)].step[k] = axes.strides[k][axis];
    }
    count_ = numel(shape);
    rank_ = std::max(rank_, 1);
  }

  index_t count() const { return count_; }
  // Returns operand k's stride within a run. A run is the last axis after merging.
  index_t inner_stride(int k) const { return axes_[at(rank_ - 1)].step[at(k)]; }

  // Calls body(offsets, n) for consecutive runs along the last axis that together cover the elements [begin, end).
  template <class Body> void run(index_t begin, index_t end, const Body& body) const {
    if (begin >= end) return;
    const Axis& inner = axes_[at(rank_ - 1)];
    index_t column = begin % inner.extent;
    std::array<index_t, max_rank> position{};
    Offsets row = seek(begin / inner.extent, position);
    while (true) {
      const index_t n = std::min(inner.extent - column, end - begin);
      Offsets start = row;
      for (int k = 0; k < N; ++k) start[at(k)] += column * inner.step[at(k)];
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
    index_t extent = 1;
    Offsets step{};
  };
  static constexpr std::size_t at(int i) { return static_cast<std::size_t>(i); }

  // Returns the offsets of the first element of row `row`, and sets position[axis] for the outer axes.
  Offsets seek(index_t row, std::array<index_t, max_rank>& position) const {
    Offsets offsets{};
    for (int axis = rank_ - 2; axis >= 0; --axis) {
      position[at(axis)] = row % axes_[at(axis)].extent;
      row /= axes_[at(axis)].extent;
      for (int k = 0; k < N; ++k) offsets[at(k)] += position[at(axis)] * axes_[at(axis)].step[at(k)];
    }
    return offsets;
  }

  void next_row(Offsets& row, std::array<index_t, max_rank>& position) const {
    for (int axis = rank_ - 2; axis >= 0; --axis) {
      const Axis& outer = axes_[at(axis)];
      for (int k = 0; k < N; ++k) row[at(k)] += outer.step[at(k)];
      if (++position[at(axis)] < outer.extent) return;
      for (int k = 0; k < N; ++k) row[at(k)] -= outer.extent * outer.step[at(k)];
      position[at(axis)] = 0;
    }
  }

  std::array<Axis, max_rank> axes_;
  int rank_ = 0;
  index_t count_ = 1;
};

}  // namespace whence
