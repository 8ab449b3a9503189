// by distance: x[k][i] += table[steps]; and how all programs read and sum numbers by distance.
#pragma once

#include "tensor/cpu/tiles/programs/program.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

// Returns the table's row for the block's query `lane` and a key; p.distances if it is beyond the table.
template <class T> static inline extent table_row(const QueryBlock<T>& block, extent lane, extent key) {
  const Problem<T>& p = block.p;
  const extent query = min(block.first_query + lane, p.queries - 1);
  const extent steps =
      p.query_step ? p.query_step[block.b * p.query_step_batch + query] - p.key_step[block.b * p.key_step_batch + key]
                   : p.first_row + query - key;
  const extent row = (p.after == 0 ? max(steps, extent(0)) : steps) - p.lowest;  // as in Steps: causal, 0 or more
  return row >= 0 && row < p.distances ? row : p.distances;
}

// Numbers by distance of one head. Consecutive keys and queries read them along diagonals, from a copy with zeros on
// both sides for pairs beyond the table. Otherwise each number is looked up, and pairs beyond read a zero after the
// last.
template <class T> struct DistanceNumbers {
  T* numbers;  // a copy
  T* of_key;   // those of one key, if each is looked up
  T* sums;     // [lanes, slots]: sums along diagonals, separate for each key modulo the lanes; or one for each number

  static bool plain(const Problem<T>& p) { return !p.query_step; }
  // place() is the index of the diagonal of `steps` in the copy. A tile's lanes and keys reach beyond queries and keys.
  static extent margin() { return block_rows<T> + tile_keys<T> + 2 * lanes<T>; }
  static extent place(const Problem<T>& p, extent steps) {
    return steps - p.lowest + margin() + max(0, p.lowest - (p.first_row - p.keys));
  }
  static extent copy_size(const Problem<T>& p) {
    return padded<T>(plain(p) ? p.distances + p.keys + p.queries + 2 * margin() : p.distances + 1);
  }
  static extent slots(const Problem<T>& p) { return (p.queries + p.keys) / lanes<T> + 4; }
  static extent sums_size(const Problem<T>& p) {
    return plain(p) ? lanes<T> * slots(p) * lanes<T> : padded<T>(p.distances + 1);
  }

  void take(Cutter<T>& cut, const Problem<T>& p, bool backward) {
    numbers = cut.take(copy_size(p)), of_key = cut.take(block_rows<T>);
    sums = backward ? cut.take(sums_size(p)) : nullptr;
  }
  void head(const Problem<T>& p, const T* from) {
    clear(numbers, copy_size(p));
    for (extent n = 0; n < p.distances; ++n) {
      const extent at = plain(p) ? place(p, p.lowest + n) : n;
      if (at >= 0 && at < copy_size(p)) numbers[at] = from[n];
    }
    if (sums) clear(sums, sums_size(p));
  }

  // Returns the numbers of key k of a tile, one for each lane.
  const T* read(const Tile<T>& tile, extent k) const {
    const QueryBlock<T>& block = tile.block;
    // Beyond the table the copy ends with zeros.
    if (const Problem<T>& p = block.p; plain(p))
      return numbers + min(place(p, block.first_token() - tile.first_key - k), copy_size(p) - margin());
    for (extent i = 0; i < block.columns; ++i) of_key[i] = numbers[table_row(block, i, tile.first_key + k)];
    return of_key;
  }

  // sums += dx along the diagonals; dx is 0 where nothing is seen.
  void gather(const Tile<T>& tile, const T* dx) const {
    const QueryBlock<T>& block = tile.block;
    const Problem<T>& p = block.p;
    if (!plain(p)) {
      for (extent k = 0; k < tile.keys; ++k)
        for (extent i = 0; i < block.rows; ++i)
          sums[table_row(block, i, tile.first_key + k)] += dx[k * block.columns + i];
      return;
    }
    // Query lanes*c + lane and key lanes*m + r are lanes*(c - m) + lane - r apart: one slot for each (r, c - m), so
    // that all reads and writes are of whole vectors.
    const extent first_pack = block.first_query / lanes<T>, first_key = tile.first_key / lanes<T>;
    const extent skipped = tile.first_key % lanes<T>;  // keys of the first m before the tile
    const extent groups = (skipped + tile.keys + lanes<T> - 1) / lanes<T>;
    for (extent r = 0; r < lanes<T>; ++r) {
      for (extent apart = 1 - groups; apart < block.packs(); ++apart) {
        T* slot = sums + (r * slots(p) + first_pack - first_key + apart + p.keys / lanes<T> + 2) * lanes<T>;
        Vector<T> sum = zero<T>();
        for (extent pack = max(apart, 0); pack < min(block.packs(), groups + apart); ++pack) {
          const extent k = (pack - apart) * lanes<T> + r - skipped;
          if (k >= 0 && k < tile.keys) sum = sum + load(dx + k * block.columns + pack * lanes<T>);
        }
        store<T>(slot, load(slot) + sum);
      }
    }
  }

  // Adds the head's sums to `to`.
  void finish(const Problem<T>& p, T* to) const {
    if (!plain(p)) {
      for (extent n = 0; n < p.distances; ++n) to[n] += sums[n];
      return;
    }
    for (extent r = 0; r < lanes<T>; ++r) {
      for (extent slot = 0; slot < slots(p); ++slot) {
        const extent first = p.first_row + (slot - p.keys / lanes<T> - 2) * lanes<T> - r - p.lowest;
        const T* from = sums + (r * slots(p) + slot) * lanes<T>;
        for (extent lane = 0; lane < lanes<T>; ++lane)
          if (first + lane >= 0 && first + lane < p.distances) to[first + lane] += from[lane];
      }
    }
  }
};

template <class T> struct ByDistance : Program<T> {
  DistanceNumbers<T> table;

  static bool runs(const Problem<T>& p) { return p.in[At::distance_table].at != nullptr; }
  void take(Cutter<T>& cut, const Problem<T>& p, bool backward) {
    if (runs(p)) table.take(cut, p, backward);
  }
  void head(const Problem<T>& p, extent, extent h) {
    if (runs(p)) table.head(p, head_of(p.in[At::distance_table], 0, h));
  }
  void add(const Tile<T>& tile, T* x) {
    const extent columns = tile.block.columns;
    for (extent k = 0; runs(tile.block.p) && k < tile.keys; ++k) {
      const T* from = table.read(tile, k);
      T* row = x + k * columns;
      for (extent n = 0; n < columns; n += lanes<T>) store<T>(row + n, load(row + n) + load(from + n));
    }
  }
  void gather(const Tile<T>& tile, const T* dx) {
    if (tile.block.p.d[At::distance_table].at) table.gather(tile, dx);
  }
  void finish(const Problem<T>& p, extent b, extent h) {
    if (p.d[At::distance_table].at) table.finish(p, head_of(p.d[At::distance_table], b, h));
  }
  using Program<T>::finish;
};

}  // namespace whence::tiles::WHENCE_TILES_TARGET
