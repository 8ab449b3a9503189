// Maps the number of an element to its offsets in several tensors of one shape and different strides, for threads that
// each do one element. (strided_loop.h is for threads that walk over many.)
#pragma once

#include <cstdlib>
#include <type_traits>

#include "tensor/divisor.h"
#include "tensor/shape.h"

namespace whence {

// N operands of one shape, seen through merged axes. Passed to kernels by value. Elements are numbered in the row-major
// order of the shape.
template <int N> class StridedIndex {
 public:
  struct Offsets {
    index_t of[N] = {};
    WHENCE_HD index_t operator[](int k) const { return of[k]; }
  };

  StridedIndex() = default;  // of one element
  StridedIndex(const Shape& shape, const std::array<Strides, N>& strides) : count_(numel(shape)) {
    const MergedAxes<N> axes = merged(shape, strides);
    for (int axis = axes.shape.rank() - 1; axis >= 0; --axis, ++rank_) {
      extent_[rank_] = Divisor(axes.shape[axis], 0);
      for (int k = 0; k < N; ++k) step_[rank_].of[k] = axes.strides[static_cast<std::size_t>(k)][axis];
    }
    find_divisors();
  }

  WHENCE_HD index_t count() const { return count_; }

  // True if the innermost axis can be read in packs of `size` neighbours: each operand is contiguous along it with
  // every row at a multiple of `size` elements, or has stride 0.
  bool has_packs(index_t size) const {
    if (rank_ == 0 || extent_[0].by() % size != 0) return false;
    for (int k = 0; k < N; ++k) {
      const index_t inner = step_[0].of[k];
      if (inner != 0 && inner != 1) return false;
      for (int axis = 1; inner == 1 && axis < rank_; ++axis)
        if (step_[axis].of[k] % size != 0) return false;
    }
    return true;
  }
  // Returns the index of packs instead of elements; offsets stay in elements. REQUIRES: has_packs(size).
  StridedIndex in_packs(index_t size) const {
    StridedIndex result = *this;
    result.count_ /= size;
    result.extent_[0] = Divisor(extent_[0].by() / size, 0);
    for (int k = 0; k < N; ++k) result.step_[0].of[k] *= size;
    result.find_divisors();
    return result;
  }
  // 1 or 0: see has_packs.
  index_t inner_step(int k) const { return step_[0].of[k]; }
  // True if each operand is contiguous, or one number for all elements.
  bool is_one_run() const { return rank_ == 0 || (rank_ == 1 && has_packs(1)); }

  WHENCE_HD Offsets operator()(index_t i) const {
    return narrow_ ? offsets(static_cast<std::uint32_t>(i)) : offsets(static_cast<std::uint64_t>(i));
  }

 private:
  template <class I> struct Sums {
    I of[N] = {};
  };
  template <class I> WHENCE_HD Offsets offsets(I i) const {
    Sums<I> sums;
    add_from<0>(i, sums);
    Offsets at;
    for (int k = 0; k < N; ++k) at.of[k] = static_cast<std::make_signed_t<I>>(sums.of[k]);
    return at;
  }
  // Unrolled over axes, so that a kernel indexes no array at run time. Sums are modulo 2^32 or 2^64, which negative
  // strides need.
  template <int axis, class I> WHENCE_HD void add_from(I i, Sums<I>& sums) const {
    if (axis >= rank_) return;
    const auto parts = extent_[axis].parts(i);
    for (int k = 0; k < N; ++k) sums.of[k] += parts.rest * static_cast<I>(step_[axis].of[k]);
    if constexpr (axis + 1 < max_rank) add_from<axis + 1>(parts.quotient, sums);
  }

  void find_divisors() {
    narrow_ = Divisor::fits_narrow(count_);
    for (int k = 0; k < N; ++k) {
      index_t reach = 0;
      for (int axis = 0; axis < rank_; ++axis) reach += (extent_[axis].by() - 1) * std::abs(step_[axis].of[k]);
      narrow_ = narrow_ && Divisor::fits_narrow(reach);
    }
    for (int axis = 0; axis < rank_; ++axis)
      extent_[axis] = Divisor(extent_[axis].by(), narrow_ ? count_ : Divisor::most);
  }

  Divisor extent_[max_rank];  // the innermost axis first
  Offsets step_[max_rank];
  index_t count_ = 1;
  int rank_ = 0;
  bool narrow_ = true;  // the number of an element and all offsets fit in 31 bits
};

}  // namespace whence
