// The loops are those of Goto and van de Geijn (2008): of b a slab as deep as fits is packed, then of a block after
// block; 8 rows times three vectors of columns are kept in registers while the inner axis runs. Each number of the
// result is a sum in the order of the inner axis, by slabs whose borders the depth alone decides.
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
constexpr extent deepest = 256;  // of a slab: three vectors of columns of b are then as large as the nearest cache
template <class T> constexpr extent block_of_rows = 2048 / static_cast<extent>(sizeof(T)) / 4;  // of a, packed

#define WHENCE_INLINE __attribute__((always_inline)) static inline

WHENCE_INLINE extent parts_of(extent whole, extent part) { return (whole + part - 1) / part; }

// ---- packing: panels of as many lines (rows of a, columns of b) as a vector has lanes, [depth][lanes] each ----

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

// One panel of `lines` lines, the others 0, from `k` on.
template <class T> void pack_rest(const Operand<T>& from, extent lines, extent k, extent depth, T* to) {
  for (; k < depth; ++k) {
    T* row = to + k * lanes<T>;
    for (extent line = 0; line < lanes<T>; ++line)
      row[line] = line < lines ? from.at[line * from.across + k * from.along] : T(0);
  }
}

// A whole panel whose lines are contiguous along the inner axis: square by square.
template <class T> void pack_transposed(const Operand<T>& from, extent depth, T* to) {
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
    for (int line = 0; line < width; ++line) store(to + (k + line) * width, square[line]);
  }
  pack_rest(from, width, k, depth, to);
}

// All whole panels, whose lines lie side by side: read in the order of memory.
template <class T> void pack_rows(const Operand<T>& from, extent panels, extent depth, T* to) {
  constexpr int width = lanes<T>;
  for (extent k = 0; k < depth; ++k) {
    const T* row = from.at + k * from.along;
    for (extent panel = 0; panel < panels; ++panel) store(to + (panel * depth + k) * width, load(row + panel * width));
  }
}

template <class T> void pack(const Operand<T>& from, extent lines, extent depth, T* to) {
  const extent panels = lines / lanes<T>;
  if (from.across == 1) pack_rows(from, panels, depth, to);
  for (extent panel = 0; panel * lanes<T> < lines; ++panel) {
    const extent first = panel * lanes<T>;
    const Operand<T> rest{from.at + first * from.across, from.across, from.along};
    T* there = to + first * depth;
    if (panel == panels || (from.across != 1 && from.along != 1))
      pack_rest<T>(rest, least(lines - first, lanes<T>), 0, depth, there);
    else if (from.across != 1)
      pack_transposed(rest, depth, there);
  }
}

// ---- the product of packed panels ----

// What becomes of sums: put into the result, or, after the first slab, added to it.
template <class T> struct Finish {
  T alpha;
  const T* bias;
  bool add;
};

// 8 rows of one panel of a by `vectors` panels of b.
template <class T, int vectors>
void multiply_panels(
    const T* a, const T* b, extent depth, const Finish<T>& finish, T* to, extent leading, extent rows, extent columns) {
  constexpr int width = lanes<T>;
  using V = Vector<T>;
  V sums[rows_at_once][vectors] = {};
  const T* panels[vectors];
  for (int v = 0; v < vectors; ++v) panels[v] = b + v * depth * width;
  for (extent k = 0; k < depth; ++k) {
    V right[vectors];
#pragma GCC unroll 3
    for (int v = 0; v < vectors; ++v) right[v] = load(panels[v] + k * width);
#pragma GCC unroll 8
    for (int row = 0; row < rows_at_once; ++row) {
      const V left = a[k * width + row] - V{};
#pragma GCC unroll 3
      for (int v = 0; v < vectors; ++v) sums[row][v] += left * right[v];
    }
  }
  T edge[vectors * width];
#pragma GCC unroll 8
  for (int row = 0; row < rows_at_once; ++row) {
    if (row >= rows) break;
    T* line = to + row * leading;
#pragma GCC unroll 3
    for (int v = 0; v < vectors; ++v) {
      const extent left = columns - v * width;
      V sum = sums[row][v] * finish.alpha;
      if (left >= width) {
        if (finish.add) sum += load(line + v * width);
        if (finish.bias) sum += load(finish.bias + v * width);
        store(line + v * width, sum);
      } else {
        store(edge, sum);
        for (extent n = 0; n < left; ++n) {
          T& number = line[v * width + n];
          number = (finish.add ? number : T(0)) + edge[n] + (finish.bias ? finish.bias[v * width + n] : T(0));
        }
      }
    }
  }
}

template <class T>
void multiply_blocks(
    const T* a, const T* b, const Tile<T>& tile, extent first_row, extent rows, extent depth, const Finish<T>& finish) {
  constexpr int width = lanes<T>, panel = vectors_at_once * width;
  for (extent column = 0; column < tile.columns; column += panel) {
    const extent columns = least(tile.columns - column, panel), vectors = parts_of(columns, width);
    const T* right = b + column * depth;
    const Finish<T> here{finish.alpha, finish.bias ? finish.bias + column : nullptr, finish.add};
    for (extent row = 0; row < rows; row += rows_at_once) {
      const T* left = a + row / width * width * depth + row % width;
      T* to = tile.to + (first_row + row) * tile.leading + column;
      const extent height = least(rows - row, rows_at_once);
      if (vectors == 3)
        multiply_panels<T, 3>(left, right, depth, here, to, tile.leading, height, columns);
      else if (vectors == 2)
        multiply_panels<T, 2>(left, right, depth, here, to, tile.leading, height, columns);
      else
        multiply_panels<T, 1>(left, right, depth, here, to, tile.leading, height, columns);
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
    pack<T>({tile.b.at + first * tile.b.along, tile.b.across, tile.b.along}, tile.columns, depth, packed_b);
    for (extent row = 0; row < tile.rows; row += block_of_rows<T>) {
      const extent rows = least(block_of_rows<T>, tile.rows - row);
      pack<T>(
          {tile.a.at + row * tile.a.across + first * tile.a.along, tile.a.across, tile.a.along}, rows, depth, packed_a);
      multiply_blocks(packed_a, packed_b, tile, row, rows, depth, finish);
    }
  }
}

template std::int64_t scratch_size<float>(std::int64_t);
template std::int64_t scratch_size<double>(std::int64_t);
template void multiply<float>(const Tile<float>&, float*);
template void multiply<double>(const Tile<double>&, double*);

}  // namespace whence::products
