// Products in f32 and f64. Rows of a that are contiguous along the inner axis are read in place; else a is packed,
// block after block. Packed panels have several lines: 8 rows of a, up to three vectors of columns of b.
#ifdef __x86_64__
#define WHENCE_TILES_TARGET product
#include "tensor/cpu/product_loops.h"

namespace whence::products {
namespace {

using namespace products::product;

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
