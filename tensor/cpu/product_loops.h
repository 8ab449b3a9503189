// The loops of a matrix product on one thread, after Goto and van de Geijn (2008): a slab of b, as deep as the cache
// holds, is packed; then 8 rows of a times three vectors of columns stay in registers along the inner axis. Each result
// is a sum in the order of the inner axis, by slabs. Only the depth decides their borders, so the tile around a result
// does not matter.
// Compiled for AVX-512 with the vectors of tiled attention; the rule of vector.h about shared headers holds here too.
#pragma once

#define WHENCE_TILES_BYTES 64
#include "tensor/cpu/product.h"
#include "tensor/cpu/tiles/transpose.h"

namespace whence::products::WHENCE_TILES_TARGET {

using tiles::extent;
using namespace tiles::WHENCE_TILES_TARGET;

constexpr int rows_at_once = 8, vectors_at_once = 3;
template <class T> constexpr extent widest = vectors_at_once * lanes<T>;  // panel of b
constexpr extent deepest = 384;  // of a slab: as deep as fits into the second cache
template <class T> constexpr extent block_of_rows = 2048 / static_cast<extent>(sizeof(T)) / 4;

#define WHENCE_INLINE __attribute__((always_inline)) static inline

WHENCE_INLINE extent parts_of(extent whole, extent part) { return (whole + part - 1) / part; }

// ---- the product of packed panels: of b, and of a where it is packed, [depth][lines] each ----

// Width of the next panel when `left` columns remain. Four vectors are split 2+2, not 3+1: a panel of one vector is
// bound by its loads.
template <class T> WHENCE_INLINE extent panel_of(extent left) {
  const extent vectors = parts_of(left, lanes<T>);
  return (vectors == 4 ? 2 : min(vectors, vectors_at_once)) * lanes<T>;
}

// Epilogue: sums are written to the result, or, after the first slab, added to it.
template <class T> struct Epilogue {
  T alpha;
  const T* bias;
  bool add;
};

// Blocks of 8 rows of a are `block` apart, rows `across`; `along` is a compile-time constant.
template <class T> struct Rows {
  const T* at;
  extent block, across;
};

// Loads the numbers of a vector whose bit is set; the others are 0 or unchanged.
WHENCE_INLINE Vector<float> load_some(const float* from, unsigned bits) {
  return reinterpret_cast<Vector<float>>(_mm512_maskz_loadu_ps(static_cast<__mmask16>(bits), from));
}
WHENCE_INLINE Vector<double> load_some(const double* from, unsigned bits) {
  return reinterpret_cast<Vector<double>>(_mm512_maskz_loadu_pd(static_cast<__mmask8>(bits), from));
}
WHENCE_INLINE void store_some(float* to, Vector<float> x, unsigned bits) {
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>(bits), reinterpret_cast<__m512>(x));
}
WHENCE_INLINE void store_some(double* to, Vector<double> x, unsigned bits) {
  _mm512_mask_storeu_pd(to, static_cast<__mmask8>(bits), reinterpret_cast<__m512d>(x));
}

WHENCE_INLINE Vector<float> in_all_lanes(float x) { return reinterpret_cast<Vector<float>>(_mm512_set1_ps(x)); }
WHENCE_INLINE Vector<double> in_all_lanes(double x) { return reinterpret_cast<Vector<double>>(_mm512_set1_pd(x)); }

// 8 rows of a by one panel of b. If there are fewer rows the last one is multiplied again, and not stored.
template <int along, int vectors, class T>
void multiply_panels(const T* a, extent across, const T* b, extent depth, const Epilogue<T>& finish, T* to,
    extent leading, extent rows, extent columns) {
  constexpr int width = lanes<T>;
  using V = Vector<T>;
  V sums[rows_at_once][vectors] = {};
  const T* lines[rows_at_once];
  for (int row = 0; row < rows_at_once; ++row) lines[row] = a + min(row, rows - 1) * across;
  if (finish.add)  // an earlier slab's results have left the cache by now
    for (int row = 0; row < rows_at_once; ++row)
      for (int v = 0; v < vectors; ++v) __builtin_prefetch(to + min(row, rows - 1) * leading + v * width, 1);
  for (extent k = 0; k < depth; ++k) {
    V right[vectors];
#pragma GCC unroll 3
    for (int v = 0; v < vectors; ++v) right[v] = load(b + (k * vectors + v) * width);
#pragma GCC unroll 8
    for (int row = 0; row < rows_at_once; ++row) {
      const V left = in_all_lanes(lines[row][k * along]);
#pragma GCC unroll 3
      for (int v = 0; v < vectors; ++v) sums[row][v] = sums[row][v] + left * right[v];
    }
  }
  unsigned some[vectors];
  V bias[vectors];
#pragma GCC unroll 3
  for (int v = 0; v < vectors; ++v) {
    some[v] = (1U << min(columns - v * width, width)) - 1;
    bias[v] = finish.bias ? load_some(finish.bias + v * width, some[v]) : V{};
  }
#pragma GCC unroll 8
  for (int row = 0; row < rows_at_once; ++row) {
    if (row >= rows) break;
#pragma GCC unroll 3
    for (int v = 0; v < vectors; ++v) {
      T* const there = to + row * leading + v * width;
      if (columns >= (v + 1) * width)  // without a mask, which is slow on some processors
        store(there, sums[row][v] * finish.alpha + (finish.add ? load(there) : V{}) + bias[v]);
      else
        store_some(
            there, sums[row][v] * finish.alpha + (finish.add ? load_some(there, some[v]) : V{}) + bias[v], some[v]);
    }
  }
}

template <int along, class T>
void multiply_block(const Rows<T>& a, const T* b, const Tile<T>& tile, extent first_row, extent rows, extent depth,
    const Epilogue<T>& finish) {
  extent columns;
  for (extent column = 0; column < tile.columns; column += columns) {
    const T* right = b + column * depth;
    const Epilogue<T> here{finish.alpha, finish.bias ? finish.bias + column : nullptr, finish.add};
    const extent panel = panel_of<T>(tile.columns - column);
    columns = min(panel, tile.columns - column);
    for (extent row = 0; row < rows; row += rows_at_once) {
      const T* left = a.at + row / rows_at_once * a.block;
      T* to = tile.to + (first_row + row) * tile.leading + column;
      const extent height = min(rows - row, rows_at_once);
      if (panel == widest<T>)
        multiply_panels<along, 3>(left, a.across, right, depth, here, to, tile.leading, height, columns);
      else if (panel == 2 * lanes<T>)
        multiply_panels<along, 2>(left, a.across, right, depth, here, to, tile.leading, height, columns);
      else
        multiply_panels<along, 1>(left, a.across, right, depth, here, to, tile.leading, height, columns);
    }
  }
}

}  // namespace whence::products::WHENCE_TILES_TARGET
