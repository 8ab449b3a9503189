// Extents and strides: up to six axes stored inline, trivially copyable, passed to kernels by
// value. All indices are 64 bit.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "tensor/device.h"

namespace whence {

using index_t = std::int64_t;
inline constexpr int max_rank = 6;

// PerAxis holds `rank` numbers, one per axis. Negative axes count from the end: shape[-1] is the last extent. Throws
// Error beyond max_rank axes; [], leading() and without() do not check.
template <class Tag> class PerAxis {
 public:
  constexpr PerAxis() = default;
  constexpr PerAxis(std::initializer_list<index_t> values) : PerAxis(values.begin(), values.size()) {}
  explicit PerAxis(const std::vector<index_t>& values) : PerAxis(values.data(), values.size()) {}

  static constexpr PerAxis filled(int rank, index_t value) {
    PerAxis result;
    for (int axis = 0; axis < rank; ++axis) result.push_back(value);
    return result;
  }

  WHENCE_HD constexpr int rank() const { return rank_; }
  WHENCE_HD constexpr index_t operator[](int axis) const { return values_[axis < 0 ? axis + rank_ : axis]; }
  WHENCE_HD constexpr index_t& operator[](int axis) { return values_[axis < 0 ? axis + rank_ : axis]; }
  constexpr const index_t* begin() const { return values_; }
  constexpr const index_t* end() const { return values_ + rank_; }
  constexpr void push_back(index_t value) {
    if (rank_ == max_rank) too_many_axes();
    values_[rank_++] = value;
  }
  // Returns the first `count` axes, or all but the last -count.
  constexpr PerAxis leading(int count) const {
    return {values_, static_cast<std::size_t>(count < 0 ? rank_ + count : count)};
  }
  constexpr PerAxis without(int axis) const {
    PerAxis result = leading(axis);
    for (int i = axis + 1; i < rank_; ++i) result.push_back(values_[i]);
    return result;
  }

  friend constexpr bool operator==(const PerAxis& a, const PerAxis& b) {
    if (a.rank_ != b.rank_) return false;
    for (int axis = 0; axis < a.rank_; ++axis)
      if (a.values_[axis] != b.values_[axis]) return false;
    return true;
  }

 private:
  constexpr PerAxis(const index_t* values, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) push_back(values[i]);
  }
  [[noreturn]] static void too_many_axes();

  index_t values_[max_rank] = {};
  int rank_ = 0;
};

using Shape = PerAxis<struct ShapeTag>;  // extents, each >= 0; rank 0 is a scalar
// Distance in elements between neighbours along each axis; 0 where broadcast.
using Strides = PerAxis<struct StridesTag>;
static_assert(std::is_trivially_copyable_v<Shape>);

WHENCE_HD constexpr index_t numel(const Shape& shape) {
  index_t count = 1;
  for (int axis = 0; axis < shape.rank(); ++axis) count *= shape[axis];
  return count;
}

// Returns numel(shape), or -1 if an extent is negative or the product of the others reaches 2^59: no tensor has such a
// shape, so no product of its extents, counted in bytes, overflows.
index_t countable(const Shape& shape);

// Returns [rows, last extent]: all axes before the last folded into one.
constexpr Shape as_rows(const Shape& shape) { return {numel(shape.leading(-1)), shape[-1]}; }

// Returns the indices of element number `element` in row-major order. REQUIRES: it exists.
constexpr Shape position_of(index_t element, const Shape& shape) {
  Shape position = shape;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) position[axis] = element % shape[axis], element /= shape[axis];
  return position;
}

// Row-major strides of `shape`.
constexpr Strides contiguous_strides(const Shape& shape) {
  Strides strides = Strides::filled(shape.rank(), 1);
  for (int axis = shape.rank() - 2; axis >= 0; --axis)
    strides[axis] = strides[axis + 1] * (shape[axis + 1] > 0 ? shape[axis + 1] : 1);
  return strides;
}

// True if elements in row-major order are adjacent. Axes of extent 1 do not matter; empty tensors are contiguous.
constexpr bool is_contiguous(const Shape& shape, const Strides& strides) {
  if (numel(shape) == 0) return true;
  index_t expected = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (shape[axis] != 1 && strides[axis] != expected) return false;
    expected *= shape[axis];
  }
  return true;
}

// Returns the shape that both broadcast to (axes aligned at the end, extent 1 stretches). Throws Error naming `op` if
// they do not fit.
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);

// Returns `axis` in [-rank, rank) as an axis in [0, rank). Throws Error naming `op` otherwise.
int normal_axis(const char* op, int axis, int rank);

// ---- Merged axes, which every operand steps through evenly: contiguous or broadcast operands end up with one or two.

// One shape, and how each of N operands steps through it.
template <std::size_t N> struct MergedAxes {
  Shape shape;
  std::array<Strides, N> strides;
};

// Returns the same elements in the same order. Axes of extent 1 are dropped. Two neighbouring axes become one if each
// operand's outer stride equals the inner stride times the inner extent.
template <std::size_t N> MergedAxes<N> merged(const Shape& shape, const std::array<Strides, N>& strides) {
  MergedAxes<N> result;
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
  const MergedAxes<1> axes = merged<1>(shape, {strides});
  if (axes.shape.rank() > 1) return std::nullopt;
  return axes.shape.rank() == 0 ? 0 : axes.strides[0][0];
}

std::string to_string(const Shape& shape);  // "[2,3,4]"
std::ostream& operator<<(std::ostream& out, const Shape& shape);

}  // namespace whence
