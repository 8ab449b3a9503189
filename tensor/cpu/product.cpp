// The loops are those of Goto and van de Geijn (2008): of b a slab as deep as fits is packed, then 8 rows of a times
// three vectors of columns are kept in registers while the inner axis runs. Rows of a that are contiguous along it are
// read where they lie. Each number of the result is a sum in the order of the inner axis, by slabs whose borders the
// depth alone decides, whatever the tile around it.
// Compiled for AVX-512, with the vectors of tiled attention; the rule of vector.h about shared headers holds here too.
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
constexpr extent deepest = 384;  // of a slab: what fits the second cache is multiplied for as long as can be
template <class T> constexpr extent block_of_rows = 2048 / static_cast<extent>(sizeof(T)) / 4;

#define WHENCE_INLINE __attribute__((always_inline)) static inline

WHENCE_INLINE extent parts_of(extent whole, extent part) { return (whole + part - 1) / part; }

// ---- packing: panels of several lines (8 rows of a, up to three vectors of columns of b), [depth][lines] each ----

template <int... numbers> struct Numbers {};
template <int count, int... numbers> struct CountUp : CountUp<count - 1, count - 1, numbers...> {};
template <int... numbers> struct CountUp<0, numbers...> {
  using type = Numbers<numbers...>;
};

// Swaps the upper right with the lower left square, of side `half`, in every square of twice that side.
template <int half, class V, int... lane> WHENCE_INLINE void swap_squares(V& above, V& below, Numbers<lane...>) {
  constexpr int count = sizeof...(lane);
  const V first = __builtin_shufflevector(above, below, ((lane & half) ? lane - half + count : lane)...);
  below = __builtin_shufflevector(above, below, ((lane & half) ? lane + count : lane + half)...);
  above = first;
}
template <class T, int half> WHENCE_INLINE void transpose(Vector<T>* rows) {
  if constexpr (half > 0) {
    using Lanes = typename CountUp<static_cast<int>(lanes<T>)>::type;
#pragma GCC unroll 16
    for (int row = 0; row < lanes<T>; ++row)
      if (!(row & half)) swap_squares<half>(rows[row], rows[row + half], Lanes{});
    transpose<T, half / 2>(rows);
  }
}

// Columns of the panel of b that begins where `left` are left, in whole vectors. Four vectors are two and two: one alone
// is read more often than it is multiplied.
template <class T> WHENCE_INLINE extent panel_of(extent left) {
  const extent vectors = parts_of(left, lanes<T>);
  return (vectors == 4 ? 2 : least(vectors, vectors_at_once)) * lanes<T>;
}

// `lines` lines from `k` on, and zeros up to `padded` ones. Steps along the inner axis are `pitch` apart.
template <class T>
void pack_rest(const Operand<T>& from, extent lines, extent padded, extent k, extent depth, extent pitch, T* to) {
  for (; k < depth; ++k)
    for (extent line = 0; line < padded; ++line)
      to[k * pitch + line] = line < lines ? from.at[line * from.across + k * from.along] : T(0);
}

// A vector of lines that are contiguous along the inner axis: square by square.
template <class T> void pack_transposed(const Operand<T>& from, extent depth, extent pitch, T* to) {
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
    transpose<T, width / 2>(square);
#pragma GCC unroll 16
    for (int line = 0; line < width; ++line) store(to + (k + line) * pitch, square[line]);
  }
  pack_rest(from, width, width, k, depth, pitch, to);
}

// Panels of `lines` lines that lie side by side: read in the order of memory.
template <class T, int lines> void pack_rows(const Operand<T>& from, extent panels, extent depth, extent pitch, T* to) {
  for (extent k = 0; k < depth; ++k) {
    const T* row = from.at + k * from.along;
    for (extent panel = 0; panel < panels; ++panel)
      __builtin_memcpy(to + panel * lines * depth + k * pitch, row + panel * lines, lines * sizeof(T));
  }
}

template <class T> void pack_a(const Operand<T>& from, extent rows, extent depth, T* to) {
  const extent whole = rows / rows_at_once * rows_at_once, rest = rows - whole;
  pack_rows<T, rows_at_once>(from, whole / rows_at_once, depth, rows_at_once, to);
  pack_rest<T>({from.at + whole, 1, from.along}, rest, rest, 0, depth, rows_at_once, to + whole * depth);
}

template <class T> void pack_b(const Operand<T>& from, extent columns, extent depth, T* to) {
  extent column = 0;
  if (from.across == 1) {
    while (column < columns - widest<T> && panel_of<T>(columns - column) == widest<T>) column += widest<T>;
    pack_rows<T, widest<T>>(from, column / widest<T>, depth, widest<T>, to);
  }
  while (column < columns) {
    const extent panel = panel_of<T>(columns - column);
    T* there = to + column * depth;
    for (const extent end = column + panel; column < end; column += lanes<T>, there += lanes<T>) {
      const Operand<T> lines{from.at + column * from.across, from.across, from.along};
      if (columns - column < lanes<T>)
        pack_rest(lines, columns - column, lanes<T>, 0, depth, panel, there);
      else if (from.across == 1)
        pack_rows<T, lanes<T>>(lines, 1, depth, panel, there);
      else
        pack_transposed(lines, depth, panel, there);
    }
  }
}

// ---- the product of packed panels ----

// What becomes of sums: put into the result, or, after the first slab, added to it.
template <class T> struct Finish {
  T alpha;
  const T* bias;
  bool add;
};

// Blocks of 8 rows of a are `block` apart, rows `across`; `along` is known when this is compiled.
template <class T> struct Rows {
  const T* at;
  extent block, across;
};

// The numbers of a vector whose bit is set, the others 0 or left as they are.
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

// 8 rows of a by one panel of b. Where there are fewer rows the last one is multiplied again, and left out.
template <class T, int along, int vectors>
void multiply_panels(const T* a, extent across, const T* b, extent depth, const Finish<T>& finish, T* to,
    extent leading, extent rows, extent columns) {
  constexpr int width = lanes<T>;
  using V = Vector<T>;
  V sums[rows_at_once][vectors] = {};
  const T* lines[rows_at_once];
  for (int row = 0; row < rows_at_once; ++row) lines[row] = a + least(row, rows - 1) * across;
  for (extent k = 0; k < depth; ++k) {
    V right[vectors];
#pragma GCC unroll 3
    for (int v = 0; v < vectors; ++v) right[v] = load(b + (k * vectors + v) * width);
#pragma GCC unroll 8
    for (int row = 0; row < rows_at_once; ++row) {
      const V left = lines[row][k * along] - V{};
#pragma GCC unroll 3
      for (int v = 0; v < vectors; ++v) sums[row][v] += left * right[v];
    }
  }
  unsigned some[vectors];
  V bias[vectors];
#pragma GCC unroll 3
  for (int v = 0; v < vectors; ++v) {
    some[v] = (1U << least(columns - v * width, width)) - 1;
    bias[v] = finish.bias ? load_some(finish.bias + v * width, some[v]) : V{};
  }
#pragma GCC unroll 8
  for (int row = 0; row < rows_at_once; ++row) {
    if (row >= rows) break;
#pragma GCC unroll 3
    for (int v = 0; v < vectors; ++v) {
      T* const there = to + row * leading + v * width;
      if (columns >= (v + 1) * width)  // stored without a mask, which some processors are slow at
        store(there, sums[row][v] * finish.alpha + (finish.add ? load(there) : V{}) + bias[v]);
      else
        store_some(
            there, sums[row][v] * finish.alpha + (finish.add ? load_some(there, some[v]) : V{}) + bias[v], some[v]);
    }
  }
}

template <class T, int along>
void multiply_block(const Rows<T>& a, const T* b, const Tile<T>& tile, extent first_row, extent rows, extent depth,
    const Finish<T>& finish) {
  extent columns;
  for (extent column = 0; column < tile.columns; column += columns) {
    const T* right = b + column * depth;
    const Finish<T> here{finish.alpha, finish.bias ? finish.bias + column : nullptr, finish.add};
    const extent panel = panel_of<T>(tile.columns - column);
    columns = least(panel, tile.columns - column);
    for (extent row = 0; row < rows; row += rows_at_once) {
      const T* left = a.at + row / rows_at_once * a.block;
      T* to = tile.to + (first_row + row) * tile.leading + column;
      const extent height = least(rows - row, rows_at_once);
      if (panel == widest<T>)
        multiply_panels<T, along, 3>(left, a.across, right, depth, here, to, tile.leading, height, columns);
      else if (panel == 2 * lanes<T>)
        multiply_panels<T, along, 2>(left, a.across, right, depth, here, to, tile.leading, height, columns);
      else
        multiply_panels<T, along, 1>(left, a.across, right, depth, here, to, tile.leading, height, columns);
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
    const extent depth = least(deep, tile.depth - first);
    const Finish<T> finish{tile.alpha, first + depth == tile.depth ? tile.bias : nullptr, first > 0};
    pack_b<T>({tile.b.at + first * tile.b.along, tile.b.across, tile.b.along}, tile.columns, depth, packed_b);
    for (extent row = 0; row < tile.rows; row += block_of_rows<T>) {
      const extent rows = least(block_of_rows<T>, tile.rows - row);
      const T* a = tile.a.at + row * tile.a.across + first * tile.a.along;
      if (tile.a.along == 1) {
        multiply_block<T, 1>(
            {a, rows_at_once * tile.a.across, tile.a.across}, packed_b, tile, row, rows, depth, finish);
      } else {
        pack_a<T>({a, 1, tile.a.along}, rows, depth, packed_a);
        multiply_block<T, rows_at_once>({packed_a, rows_at_once * depth, 1}, packed_b, tile, row, rows, depth, finish);
      }
    }
  }
}

template std::int64_t scratch_size<float>(std::int64_t);
template std::int64_t scratch_size<double>(std::int64_t);
template void multiply<float>(const Tile<float>&, float*);
template void multiply<double>(const Tile<double>&, double*);

}  // namespace whence::products
