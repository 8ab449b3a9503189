// One tile of pairs, keys x queries: a row of it is one key, its lanes are queries. A recurrence along the keys of one
// query (softmax, CoPE's sum, DAPE's convolution) then is plain arithmetic between rows, for many queries at a time.
#pragma once

#include "tensor/cpu/tiles/products.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

// Queries of a block and keys of a tile.
template <class T> inline constexpr extent block_rows = sizeof(T) == 4 ? 64 : has_vectors<T> ? 32 : 4;
template <class T> inline constexpr extent tile_keys = has_vectors<T> ? 64 : 8;
template <class T> static inline T number(extent n) { return static_cast<T>(static_cast<double>(n)); }
// In place of minus infinity: no finite logit is below it, and subtracting it from itself gives 0.
template <class T> static inline T nothing() { return T(static_cast<T>(sizeof(T) == 4 ? -__FLT_MAX__ : -__DBL_MAX__)); }

// Row 0 of a batch and a query head.
template <class T> static inline T* head_of(const Rows<T>& rows, extent b, extent h) {
  return rows.at + b * rows.batch + (rows.group ? h / rows.group : h) * rows.head;
}

// Lanes of a vector from `first` on, before `end`.
template <class T> static inline Mask<T> lanes_between(extent first, extent end) {
  const Mask<T> begun = count_up<T>() >= splat(number<T>(first)), open = count_up<T>() < splat(number<T>(end));
  return begun & open;
}

// Some queries of one head: first_query + lane. The last of `columns` lanes may have no query.
template <class T> struct QueryBlock {
  const Problem<T>& p;
  extent b, h, first_query, rows, columns;

  QueryBlock(const Problem<T>& problem, extent batch, extent head, extent first, extent count)
      : QueryBlock(problem, batch, head, first, count, padded<T>(count)) {}
  QueryBlock(const Problem<T>& problem, extent batch, extent head, extent first, extent count, extent wide)
      : p(problem), b(batch), h(head), first_query(first), rows(count), columns(wide) {}
  extent packs() const { return columns / lanes<T>; }
  extent first_token() const { return p.first_row + first_query; }  // as an index of keys
  // The first key that the block's first row sees, and the end of the keys that its last row sees: others are skipped.
  extent first_key() const { return max(first_token() - p.before, 0); }
  extent keys() const { return min(p.keys, first_token() + rows + p.after); }
  const bool* present() const { return p.present ? p.present + b * p.keys : nullptr; }
  bool sees_any(extent i) const {
    const extent own = first_token() + i, first = max(own - p.before, 0), seen = min(p.keys, own + p.after + 1);
    if (!p.present) return seen > first;
    for (extent key = first; key < seen; ++key)
      if (present()[key]) return true;
    return false;
  }
};

template <class T> struct Tile {
  const QueryBlock<T>& block;
  extent first_key, keys;
  bool edge;  // true if some pair of it is not seen

  Tile(const QueryBlock<T>& of, extent first, extent count) : block(of), first_key(first), keys(count) {
    edge = first + count - 1 > of.first_token() + of.p.after || first < of.first_token() + of.rows - 1 - of.p.before;
    if (const bool* present = of.present())
      for (extent k = 0; k < count; ++k) edge |= !present[first + k];
  }
  // Lanes from here on see key number k of the tile, if it is present.
  extent first_lane(extent k) const { return max(first_key + k - block.first_token() - block.p.after, 0); }
  // Lanes from here on no longer see it.
  extent end_lane(extent k) const {
    const bool* present = block.present();
    if (present && !present[first_key + k]) return 0;
    return min(first_key + k - block.first_token() + block.p.before + 1, block.columns);
  }
  Mask<T> seen(extent k, extent pack) const {
    const extent lane = pack * lanes<T>;
    return lanes_between<T>(first_lane(k) - lane, end_lane(k) - lane);
  }
};

// Calls f(first key of the tile, keys) from the last tile that the block sees down to the first.
template <class T, class F> static inline void tiles_down(const QueryBlock<T>& block, const F& f) {
  for (extent end = block.keys(); end > block.first_key();) {
    const extent begin = (end - 1) / tile_keys<T> * tile_keys<T>;
    f(begin, end - begin);
    end = begin;
  }
}

// x[k][i] = a_k.b_i for the pairs of a tile, b transposed [depth, columns]. Unseen pairs may be left out.
template <class T>
static void products_of_pairs(const Tile<T>& tile, extent depth, const T* a, extent a_row, const T* b, T* x) {
  const extent columns = tile.block.columns;
  if (!tile.edge) {
    multiply<T>(tile.keys, columns, {depth}, {a, a_row, 1}, b, columns, x, columns, Start::zero);
    return;
  }
  for (extent k = 0; k < tile.keys; k += lanes<T>) {
    const extent skip = tile.first_lane(k) / lanes<T> * lanes<T>;
    if (skip >= columns) continue;
    multiply<T>(min(lanes<T>, tile.keys - k), columns - skip, {depth}, {a + k * a_row, a_row, 1}, b + skip, columns,
        x + k * columns + skip, columns, Start::zero);
  }
}

// to[k] += sum_i x[k][i] rows[i], over the queries that see key k. x is 0 where not seen.
template <class T>
static void sum_over_queries(const Tile<T>& tile, const T* x, const T* rows, extent width, T* to, extent to_row) {
  const extent columns = tile.block.columns;
  for (extent k = 0, step = tile.edge ? lanes<T> : tile.keys; k < tile.keys; k += step) {
    const extent from = tile.edge ? tile.first_lane(k) : 0;
    if (from >= tile.block.rows) continue;
    multiply<T>(min(step, tile.keys - k), width, {tile.block.rows - from}, {x + k * columns + from, columns, 1},
        rows + from * width, width, to + k * to_row, to_row, Start::given);
  }
}

// to[i] += sum_k x[k][i] rows[k], over the keys that query i sees.
template <class T>
static void sum_over_keys(const Tile<T>& tile, const T* x, const T* rows, extent rows_row, extent width, T* to) {
  const extent columns = tile.block.columns;
  for (extent i = 0, step = tile.edge ? lanes<T> : tile.block.rows; i < tile.block.rows; i += step) {
    const extent last = min(i + step, tile.block.rows) - 1 + tile.block.first_token();
    const extent keys = min(tile.keys, last + tile.block.p.after + 1 - tile.first_key);
    if (keys <= 0) continue;
    multiply<T>(min(step, tile.block.rows - i), width, {keys}, {x + i, 1, columns}, rows, rows_row, to + i * width,
        width, Start::given);
  }
}

}  // namespace whence::tiles::WHENCE_TILES_TARGET
