// Fragments: the parts of a small matrix that the 32 lanes of a warp hold in their registers, and the lane of each
// number. Tensor cores (tensor_cores.h) use matrices in this form. Maps are constexpr, written from the PTX manual's
// chapters on mma and ldmatrix; the emulator implements the manual's tables independently, and tests compare both with
// a GPU.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "cuda/vocabulary/thread.h"

namespace whence::gpu {

// An index that is known when the kernel is compiled.
template <int i> using Nth = std::integral_constant<int, i>;

template <class F, int... i> WHENCE_HD constexpr void each(const F& f, std::integer_sequence<int, i...>) {
  (f(Nth<i>{}), ...);
}
// Calls f(Nth<0>{}), f(Nth<1>{}), ... : a loop that is fully unrolled when it is compiled.
template <int N, class F> WHENCE_HD constexpr void each(const F& f) { each(f, std::make_integer_sequence<int, N>{}); }

// N registers of one thread, all 0 at first. Only an Nth<i> indexes them. Registers have no addresses, so an index that
// is known only at run time would move them all to slow memory.
template <class V, int N> class Registers {
 public:
  static constexpr int count = N;
  using Value = V;
  template <int i> WHENCE_HD V& operator[](Nth<i>) {
    static_assert(i >= 0 && i < N);
    return of_[i];
  }
  template <int i> WHENCE_HD const V& operator[](Nth<i>) const {
    static_assert(i >= 0 && i < N);
    return of_[i];
  }

 private:
  V of_[N] = {};
};

template <class V> struct Two {
  V low, high;
};

// A register of an operand: two neighbours of 16 bits, or one number of tf32, which is the upper 19 bits of a float.
// Two doubles are for the emulator alone, which tests a kernel's code with them.
template <class T> using Register = std::conditional_t<std::is_same_v<T, double>, Two<double>, std::uint32_t>;
template <class T> inline constexpr int per_register = sizeof(T) == 4 ? 1 : 2;

// Numbers in a row of a matrix of eight rows: 16 bytes. Such a matrix is the unit of loads and of operands.
template <class T> inline constexpr int matrix_row = 4 * per_register<T>;
// A product adds 16 x depth times depth x 8 to 16 x 8.
template <class T> inline constexpr int depth = 2 * matrix_row<T>;

// FragmentA is the left factor, four matrices; the right one takes two registers, of two matrices. FragmentC is the
// sums.
template <class T> using FragmentA = Registers<Register<T>, 4>;
template <class T> using FragmentC = Registers<Number<compute_t<T>>, 4>;

// ---- Which number a lane holds in a register; `half` 1: in its upper half.

struct Place {
  int row, column;
  friend constexpr bool operator==(Place a, Place b) { return a.row == b.row && a.column == b.column; }
};

// In a matrix of eight rows, as ldmatrix loads it.
template <class T> WHENCE_HD constexpr Place matrix_place(int lane, int half) {
  return {lane / 4, lane % 4 * per_register<T> + half};
}
// In a, 16 x depth: its left half is registers 0 and 1, of the upper and of the lower eight rows.
template <class T> WHENCE_HD constexpr Place a_place(int lane, int register_, int half) {
  const Place in = matrix_place<T>(lane, half);
  return {in.row + register_ % 2 * 8, in.column + register_ / 2 * matrix_row<T>};
}
// In b, depth x 8: two transposed matrices, one above the other.
template <class T> WHENCE_HD constexpr Place b_place(int lane, int register_, int half) {
  const Place in = matrix_place<T>(lane, half);
  return {in.column + register_ * matrix_row<T>, in.row};
}
// In the sums, 16 x 8, of every type.
WHENCE_HD constexpr Place c_place(int lane, int register_) {
  return {lane / 4 + register_ / 2 * 8, lane % 4 * 2 + register_ % 2};
}

// ---- Keys in a lane's order. The sums of a tile of `keys` columns are in keys / 8 adjacent fragments, of which a lane
// holds columns 8 c + 2 m + {0, 1} with m = lane % 4. Which key is a column is free, as long as the rows of keys and of
// values are read by the same map. With this map a lane holds keys / 4 neighbouring keys of each of its rows.

template <int keys> WHENCE_HD constexpr int key_of_column(int column) {
  return column % 8 / 2 * (keys / 4) + column / 8 * 2 + column % 2;
}
// The column of the sums that is the k-th of the next product's left factor, if registers are reused as they are.
template <class T> WHENCE_HD constexpr int column_of_depth(int k) {
  return per_register<T> == 2 ? k : k / 8 * 8 + k % 4 * 2 + k % 8 / 4;
}

// ---- Tiles in shared memory. Eight rows that are read together must not be in the same banks, so the packs of 16
// bytes of a row are permuted by its phase, one of eight.

WHENCE_HD constexpr int row_phase(int row) { return row % 8; }  // for rows that are read in order
template <int keys> WHENCE_HD constexpr int key_phase(int key) { return (key / (keys / 4) * 2 + key % 2) % 8; }
// REQUIRES: width is a multiple of eight packs.
template <class T> WHENCE_HD constexpr int tile_at(int row, int column, int width, int phase) {
  return row * width + (column / matrix_row<T> ^ phase) * matrix_row<T> + column % matrix_row<T>;
}
// The same place, whole packs and rows further on: once a lane has computed its first address, all others that it loads
// are at constant offsets. REQUIRES: its column has none of the bits of `columns`, and the row there has its row's
// phase.
WHENCE_HD constexpr int moved(int at, int rows, int columns, int width) { return (at ^ columns) + rows * width; }

}  // namespace whence::gpu
