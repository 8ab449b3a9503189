// The products of tiles, all of them: c[r][n] = start[r][n] + sum_k a[r][k] b[k][n].
// a is read number by number, with any strides; b, c and start by vectors. A block of c stays in registers while k
// runs: 24 accumulators, 4 loads of b and 6 of a for 24 multiply-adds.
#pragma once

#include "tensor/cpu/tiles/vector.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

template <class T> struct Left {
  const T* at;
  extent row, column;
};
// k runs over `outer` times `inner` rows of b: the taps of a convolution are rows at other addresses.
struct Depth {
  extent inner, outer = 1;
  extent left_outer = 0, right_outer = 0;  // strides of one outer step in a and in b
};
enum class Start { zero, given };
// add: start is added at the end. A sum over many calls is then a sum of their sums: its rounding grows with their
// number and with their length, not with the product of the two.
enum class Finish { none, leaky, add };

// Vector n of row r starts from start[n] + r start_row (null: from zero) and is stored to c[n] + r c_row.
template <class T, extent R, extent N, Finish finish>
static inline void block(const Depth& depth, Left<T> a, const T* b, extent b_row, const T* const* start,
    extent start_row, T* const* c, extent c_row, [[maybe_unused]] T slope) {
  using V = Vector<T>;
  V sum[R][N];
#pragma GCC unroll 16
  for (extent r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (extent n = 0; n < N; ++n)
      sum[r][n] = start && finish != Finish::add ? load(start[n] + r * start_row) : zero<T>();
  }
  for (extent o = 0; o < depth.outer; ++o) {
    const T *left = a.at + o * depth.left_outer, *right = b + o * depth.right_outer;
#pragma GCC unroll 4
    for (extent k = 0; k < depth.inner; ++k) {
      V row[N];
#pragma GCC unroll 4
      for (extent n = 0; n < N; ++n) row[n] = load(right + n * lanes<T>);
#pragma GCC unroll 16
      for (extent r = 0; r < R; ++r) {
        const V factor = splat(left[r * a.row]);
#pragma GCC unroll 4
        for (extent n = 0; n < N; ++n) sum[r][n] = sum[r][n] + factor * row[n];
      }
      left += a.column;
      right += b_row;
    }
  }
#pragma GCC unroll 16
  for (extent r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (extent n = 0; n < N; ++n) {
      V y = sum[r][n];
      if constexpr (finish == Finish::leaky) y = y > zero<T>() ? y : y * splat(slope);
      if constexpr (finish == Finish::add) y = y + load(start[n] + r * start_row);
      store(c[n] + r * c_row, y);
    }
  }
}

#if defined(__AVX512F__) && WHENCE_TILES_BYTES == 64
inline constexpr extent most_packs = 4;
template <extent N> inline constexpr extent rows_at_once = N == 4 ? 6 : N == 3 ? 8 : 12;
#else
inline constexpr extent most_packs = 2;
template <extent N> inline constexpr extent rows_at_once = N == 2 ? 6 : 8;
#endif

// All rows of N vectors of columns.
template <class T, extent N, Finish finish>
static inline void column(extent rows, const Depth& depth, Left<T> a, const T* b, extent b_row, const T* const* start,
    extent start_row, T* const* c, extent c_row, T slope) {
  constexpr extent most_rows = rows_at_once<N>;
  extent done = 0;
  const auto run = [&]<extent R>() {
    const T* from[N];
    T* to[N];
    for (extent n = 0; n < N; ++n) from[n] = start ? start[n] + done * start_row : nullptr, to[n] = c[n] + done * c_row;
    block<T, R, N, finish>(
        depth, {a.at + done * a.row, a.row, a.column}, b, b_row, start ? from : nullptr, start_row, to, c_row, slope);
    done += R;
  };
  for (extent times = rows / most_rows; times > 0; --times) run.template operator()<most_rows>();
  for (extent times = (rows - done) / 4; times > 0; --times) run.template operator()<4>();
  for (extent times = rows - done; times > 0; --times) run.template operator()<1>();
}

// All rows of `packs` vectors of columns of b. place(n): where vector n of row 0 is stored; begin(n): the vector it
// starts from, or null for all of them.
template <class T, Finish finish, class Begin, class Place>
static void products(extent rows, extent packs, const Depth& depth, Left<T> a, const T* b, extent b_row,
    const Begin& begin, extent begin_row, const Place& place, extent place_row, T slope) {
  extent done = 0;
  const auto run = [&]<extent N>() {
    const T* from[N];
    T* to[N];
    for (extent n = 0; n < N; ++n) from[n] = begin(done + n), to[n] = place(done + n);
    column<T, N, finish>(
        rows, depth, a, b + done * lanes<T>, b_row, from[0] ? from : nullptr, begin_row, to, place_row, slope);
    done += N;
  };
  for (extent times = packs / most_packs; times > 0; --times) run.template operator()<most_packs>();
  if constexpr (most_packs == 4) {
    if (packs - done == 3) run.template operator()<3>();
    if (packs - done == 2) run.template operator()<2>();
  }
  if (packs - done == 1) run.template operator()<1>();
}

// The `begin` of products that start from zero.
template <class T> static auto from_zero() {
  return [](extent) -> const T* { return nullptr; };
}

// c [rows, columns] = a b, or c += a b; columns is a multiple of the lanes.
template <class T>
static void multiply(extent rows, extent columns, const Depth& depth, Left<T> a, const T* b, extent b_row, T* c,
    extent c_row, Start from) {
  const auto place = [&](extent n) { return c + n * lanes<T>; };
  if (from == Start::given)
    products<T, Finish::add>(rows, columns / lanes<T>, depth, a, b, b_row, place, c_row, place, c_row, T(0));
  else
    products<T, Finish::none>(rows, columns / lanes<T>, depth, a, b, b_row, from_zero<T>(), 0, place, c_row, T(0));
}

// Adds sum_x a[m][x] b[n][x] over x in [0, count), a multiple of the lanes, to the vector c[m][n]: rows times rows. The
// caller sums the lanes, after all calls.
template <class T, extent M, extent N>
static inline void dots_block(extent count, const T* a, extent a_row, const T* b, extent b_row, T* c, extent c_row) {
  using V = Vector<T>;
  V sum[M][N];
#pragma GCC unroll 8
  for (extent m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (extent n = 0; n < N; ++n) sum[m][n] = zero<T>();
  }
  for (extent x = 0; x < count; x += lanes<T>) {
    V right[N];
#pragma GCC unroll 8
    for (extent n = 0; n < N; ++n) right[n] = load(b + n * b_row + x);
#pragma GCC unroll 8
    for (extent m = 0; m < M; ++m) {
      const V left = load(a + m * a_row + x);
#pragma GCC unroll 8
      for (extent n = 0; n < N; ++n) sum[m][n] = sum[m][n] + left * right[n];
    }
  }
#pragma GCC unroll 8
  for (extent m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (extent n = 0; n < N; ++n) {
      T* at = c + m * c_row + n * lanes<T>;
      store<T>(at, load(at) + sum[m][n]);
    }
  }
}

// c: vectors [rows, columns]. Some rows of a stay in the cache while all rows of b are read.
template <class T>
static void dots(extent rows, extent columns, extent count, const T* a, extent a_row, const T* b, extent b_row, T* c) {
  const extent c_row = columns * lanes<T>;
  extent m = 0;
  const auto run = [&]<extent M>() {
    constexpr extent N = most_packs;
    const T* left = a + m * a_row;
    extent n = 0;
    for (; n + N <= columns; n += N)
      dots_block<T, M, N>(count, left, a_row, b + n * b_row, b_row, c + m * c_row + n * lanes<T>, c_row);
    for (; n < columns; ++n)
      dots_block<T, M, 1>(count, left, a_row, b + n * b_row, b_row, c + m * c_row + n * lanes<T>, c_row);
    m += M;
  };
  for (extent times = rows / 6; times > 0; --times) run.template operator()<6>();
  for (extent times = (rows - m) / 4; times > 0; --times) run.template operator()<4>();
  for (extent times = rows - m; times > 0; --times) run.template operator()<1>();
}

// to [rows, columns] = scale from, with columns padded by zeros to `width`.
template <class T>
static void pack_rows(
    const T* from, extent from_row, extent rows, extent columns, extent width, T* to, T scale = T(1)) {
  for (extent r = 0; r < rows; ++r) {
    for (extent c = 0; c < columns; ++c) to[r * width + c] = from[r * from_row + c] * scale;
    for (extent c = columns; c < width; ++c) to[r * width + c] = T(0);
  }
}

// to [columns, width] = scale from', rows padded by zeros to `width`.
template <class T>
static void pack_transposed(const T* from, extent from_row, extent rows, extent columns, extent width, T scale, T* to) {
  constexpr extent side = lanes<T>;
  const extent squares_down = rows / side * side, squares_across = columns / side * side;
  for (extent r = 0; r < squares_down; r += side) {
    for (extent c = 0; c < squares_across; c += side) {
      Vector<T> square[side];
#pragma GCC unroll 16
      for (extent n = 0; n < side; ++n) square[n] = load(from + (r + n) * from_row + c);
      transpose<T>(square);
#pragma GCC unroll 16
      for (extent n = 0; n < side; ++n) store<T>(to + (c + n) * width + r, square[n] * splat(scale));
    }
  }
  for (extent r = 0; r < rows; ++r)
    for (extent c = r < squares_down ? squares_across : 0; c < columns; ++c)
      to[c * width + r] = from[r * from_row + c] * scale;
  for (extent c = 0; c < columns; ++c)
    for (extent r = rows; r < width; ++r) to[c * width + r] = T(0);
}

template <class T> static void clear(T* at, extent count) {
  for (extent n = 0; n < count; ++n) at[n] = T(0);
}

}  // namespace whence::tiles::WHENCE_TILES_TARGET
