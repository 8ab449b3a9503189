// Products in f32 and f64 on one thread, after Goto and van de Geijn (2008): a slab of b, as deep as the cache holds, is
// packed; then 8 rows of a times three vectors of columns stay in registers along the inner axis. Each result is a sum in
// the order of the inner axis, by slabs. Only the depth decides their borders, so the tile around a result does not
// matter. Rows of a that are contiguous along the inner axis are read in place; else a is packed, block after block.
// Packed panels have several lines: 8 rows of a, up to three vectors of columns of b.
// Compiled for AVX-512 with the vectors of tiled attention; the rule of vector.h about shared headers holds here too.
#ifdef __x86_64__
#define WHENCE_TILES_TARGET product
#define WHENCE_TILES_BYTES 64
#include "tensor/cpu/product.h"
#include "tensor/cpu/tiles/vector.h"

namespace whence::products {
namespace {

using tiles::extent;
using namespace tiles::product;

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

// Packs `lines` lines from `k` on, and zeros up to `padded` lines. Steps along the inner axis are `pitch` apart.
template <class T>
void pack_rest(const Factor<T>& from, extent lines, extent padded, extent k, extent depth, extent pitch, T* to) {
  for (; k < depth; ++k)
    for (extent line = 0; line < padded; ++line)
      to[k * pitch + line] = line < lines ? from.at[line * from.across + k * from.along] : T(0);
}

// Packs a vector of lines that are contiguous along the inner axis: square by square.
template <class T> void pack_transposed(const Factor<T>& from, extent depth, extent pitch, T* to) {
  constexpr int width = lanes<T>;
  extent k = 0;
  for (; k + width <= depth; k += width) {
    Vector<T> square[width];
#pragma GCC unroll 16
    for (int line = 0; line < width; ++line) {
      const T* at = from.at + line * from.across + k;
      __builtin_prefetch(at + 4 * width);
      square[line] = load(at);
    }
    transpose<T>(square);
#pragma GCC unroll 16
    for (int line = 0; line < width; ++line) store(to + (k + line) * pitch, square[line]);
  }
  pack_rest(from, width, width, k, depth, pitch, to);
}

// Packs panels of `lines` adjacent lines, reading in the order of memory.
template <class T, int lines> void pack_rows(const Factor<T>& from, extent panels, extent depth, extent pitch, T* to) {
  for (extent k = 0; k < depth; ++k) {
    const T* row = from.at + k * from.along;
    for (extent panel = 0; panel < panels; ++panel)
      __builtin_memcpy(to + panel * lines * depth + k * pitch, row + panel * lines, lines * sizeof(T));
  }
}

template <class T> void pack_a(const Factor<T>& from, extent rows, extent depth, T* to) {
  const extent whole = rows / rows_at_once * rows_at_once, rest = rows - whole;
  pack_rows<T, rows_at_once>(from, whole / rows_at_once, depth, rows_at_once, to);
  pack_rest<T>({from.at + whole, 1, from.along}, rest, rest, 0, depth, rows_at_once, to + whole * depth);
}

template <class T> void pack_b(const Factor<T>& from, extent columns, extent depth, T* to) {
  extent column = 0;
  if (from.across == 1) {
    while (column < columns - widest<T> && panel_of<T>(columns - column) == widest<T>) column += widest<T>;
    pack_rows<T, widest<T>>(from, column / widest<T>, depth, widest<T>, to);
  }
  while (column < columns) {
    const extent panel = panel_of<T>(columns - column);
    T* there = to + column * depth;
    for (const extent end = column + panel; column < end; column += lanes<T>, there += lanes<T>) {
      const Factor<T> lines{from.at + column * from.across, from.across, from.along};
      if (columns - column < lanes<T>)
        pack_rest(lines, columns - column, lanes<T>, 0, depth, panel, there);
      else if (from.across == 1)
        pack_rows<T, lanes<T>>(lines, 1, depth, panel, there);
      else
        pack_transposed(lines, depth, panel, there);
    }
  }
}

}  // namespace

template <class T> std::int64_t scratch_size(std::int64_t columns) {
  return deepest * (block_of_rows<T> + parts_of(columns, lanes<T>) * lanes<T>);
}

template <class T> void multiply(const Tile<T>& tile, T* scratch) {
  T *const packed_a = scratch, *const packed_b = scratch + deepest * block_of_rows<T>;
  const extent slabs = parts_of(tile.depth, deepest), deep = parts_of(tile.depth, slabs);
  for (extent first = 0; first < tile.depth; first += deep) {
    const extent depth = min(deep, tile.depth - first);
    const Epilogue<T> finish{tile.alpha, first + depth == tile.depth ? tile.bias : nullptr, first > 0};
    pack_b<T>({tile.b.at + first * tile.b.along, tile.b.across, tile.b.along}, tile.columns, depth, packed_b);
    for (extent row = 0; row < tile.rows; row += block_of_rows<T>) {
      const extent rows = min(block_of_rows<T>, tile.rows - row);
      const T* a = tile.a.at + row * tile.a.across + first * tile.a.along;
      if (tile.a.along == 1) {
        multiply_block<1, T>(
            {a, rows_at_once * tile.a.across, tile.a.across}, packed_b, tile, row, rows, depth, finish);
      } else {
        pack_a<T>({a, 1, tile.a.along}, rows, depth, packed_a);
        multiply_block<rows_at_once, T>({packed_a, rows_at_once * depth, 1}, packed_b, tile, row, rows, depth, finish);
      }
    }
  }
}

template std::int64_t scratch_size<float>(std::int64_t);
template std::int64_t scratch_size<double>(std::int64_t);
template void multiply<float>(const Tile<float>&, float*);
template void multiply<double>(const Tile<double>&, double*);

}  // namespace whence::products
#endif
