// The tile programs that add a number to each pair: read by distance, read by row and distance, one per column; and
// the sums of the pattern by distance (Shaw's values).
#pragma once

#include "tensor/cpu/tiles/tile.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

// ---- Distances ----

// Steps between the block's query `lane` and a key, as a row of a table.
template <class T> static inline extent table_row(const Block<T>& block, extent lane, extent key) {
  const Problem<T>& p = block.p;
  const extent query = least(block.first_query + lane, p.queries - 1);
  const extent steps =
      p.query_step ? p.query_step[block.b * p.query_step_batch + query] - p.key_step[block.b * p.key_step_batch + key]
                   : p.first_row + query - key;
  return most(0, least(steps - p.lowest, p.distances - 1));
}

// A table along the diagonals, with room on both sides for pairs that no query sees.
template <class T> struct Diagonals {
  extent begin;  // what stands at [0]: steps of the table's row 0 minus so many

  static extent margin() { return block_rows<T> + tile_keys<T> + 2 * lanes<T>; }
  static extent size(const Problem<T>& p) { return p.distances + p.keys + p.queries + 2 * margin(); }
};

// by distance: x[k][i] += table[steps]
template <class T> struct ByDistance {
  T* table;  // of one head, copied between margins
  T* sums;   // [lanes, slots]: sums along diagonals, apart by the key's number modulo the lanes (backward)

  static bool runs(const Problem<T>& p) { return static_cast<bool>(p.distance_table); }
  static bool plain(const Problem<T>& p) { return !p.query_step; }
  // Where the diagonal of `steps` lies in the copy.
  static extent place(const Problem<T>& p, extent steps) {
    return steps - p.lowest + Diagonals<T>::margin() + most(0, p.lowest - least_steps(p));
  }
  static extent least_steps(const Problem<T>& p) { return p.first_row - p.keys; }
  static extent copy_size(const Problem<T>& p) {
    if (!runs(p)) return 0;
    return plain(p) ? padded<T>(Diagonals<T>::size(p)) : padded<T>(p.distances);
  }
  static extent slots(const Problem<T>& p) { return (p.queries + p.keys) / lanes<T> + 4; }
  static extent sums_size(const Problem<T>& p) {
    if (!runs(p)) return 0;
    return plain(p) ? lanes<T> * slots(p) * lanes<T> : padded<T>(p.distances);
  }

  void prepare(const Problem<T>& p, extent h, T* scratch) {
    table = scratch;
    if (!runs(p)) return;
    const T* from = p.distance_table.of(0, h);
    if (!plain(p)) {
      for (extent n = 0; n < p.distances; ++n) table[n] = from[n];
      return;
    }
    clear(table, copy_size(p));
    for (extent n = 0; n < p.distances; ++n) {
      const extent at = place(p, p.lowest + n);
      if (at >= 0 && at < copy_size(p)) table[at] = from[n];
    }
  }
  void prepare_sums(const Problem<T>& p, T* scratch) {
    sums = scratch;
    clear(sums, sums_size(p));
  }

  void add(const Tile<T>& tile, T* x) const {
    const Block<T>& block = tile.block;
    const Problem<T>& p = block.p;
    if (!runs(p)) return;
    for (extent k = 0; k < tile.keys; ++k) {
      T* row = x + k * block.columns;
      if (plain(p)) {
        const T* from = table + place(p, block.first_token() - tile.first_key - k);
        for (extent n = 0; n < block.columns; n += lanes<T>) store<T>(row + n, load(row + n) + load(from + n));
      } else {
        for (extent i = 0; i < block.columns; ++i) row[i] += table[table_row(block, i, tile.first_key + k)];
      }
    }
  }

  // sums += dx along the diagonals; dx is 0 where nothing is seen.
  void gather(const Tile<T>& tile, const T* dx) const {
    const Block<T>& block = tile.block;
    const Problem<T>& p = block.p;
    if (!runs(p) || !p.d_distance_table) return;
    if (!plain(p)) {
      for (extent k = 0; k < tile.keys; ++k)
        for (extent i = 0; i < block.rows; ++i)
          sums[table_row(block, i, tile.first_key + k)] += dx[k * block.columns + i];
      return;
    }
    // Query lanes*c + lane and key lanes*m + r lie lanes*(c - m) + lane - r apart: one slot for each (r, c - m), so
    // that all reads and writes are of whole vectors.
    const extent first_pack = block.first_query / lanes<T>, first_key = tile.first_key / lanes<T>;
    const extent groups = (tile.keys + lanes<T> - 1) / lanes<T>;
    for (extent r = 0; r < least(lanes<T>, tile.keys); ++r) {
      for (extent apart = 1 - groups; apart < block.packs(); ++apart) {
        T* slot = sums + (r * slots(p) + first_pack - first_key + apart + p.keys / lanes<T> + 2) * lanes<T>;
        Vector<T> sum = load(slot);
        for (extent pack = most(apart, 0); pack < least(block.packs(), groups + apart); ++pack) {
          const extent k = (pack - apart) * lanes<T> + r;
          if (k < tile.keys) sum = sum + load(dx + k * block.columns + pack * lanes<T>);
        }
        store<T>(slot, sum);
      }
    }
  }

  // The head's sums into its row of the gradient.
  void finish(const Problem<T>& p, extent b, extent h) const {
    if (!runs(p) || !p.d_distance_table) return;
    T* to = p.d_distance_table.of(b, h);
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

// ---- by row and distance: x[k][i] += relative_scale p_i.r[steps], with the band of distances that a tile spans ----

template <class T> struct ByRowAndDistance {
  static bool runs(const Problem<T>& p) { return static_cast<bool>(p.relative_query); }
  static extent width(const Problem<T>& p) { return padded<T>(p.dim); }
  static extent band_rows(const Block<T>& block, extent keys) { return block.columns + keys - 1; }

  T *transposed, *rows, *keys, *band, *d_rows;

  static extent size(const Problem<T>& p, bool backward) {
    if (!runs(p)) return 0;
    const extent band = (block_rows<T> + tile_keys<T>)*block_rows<T>;
    const extent forward = p.dim * block_rows<T> + band;
    return backward ? forward + 2 * block_rows<T> * width(p) + p.distances * width(p) : forward;
  }
  void prepare(const Problem<T>& p, extent h, T* scratch, bool backward) {
    if (!runs(p)) return;
    transposed = scratch, band = transposed + p.dim * block_rows<T>;
    rows = band + (block_rows<T> + tile_keys<T>)*block_rows<T>, d_rows = rows + block_rows<T> * width(p);
    keys = d_rows + block_rows<T> * width(p);
    if (backward) pack_rows(p.relative_keys.of(0, h), p.relative_keys.row, p.distances, p.dim, width(p), keys);
  }
  void begin(const Block<T>& block, bool backward) {
    const Problem<T>& p = block.p;
    if (!runs(p)) return;
    const T* from = p.relative_query.of(block.b, block.h) + block.first_query * p.relative_query.row;
    pack_transposed(from, p.relative_query.row, block.rows, p.dim, block.columns, p.relative_scale, transposed);
    if (!backward) return;
    pack_rows(from, p.relative_query.row, block.rows, p.dim, width(p), rows);
    clear(d_rows, block_rows<T> * width(p));
  }

  // Steps of row 0 of the band.
  static extent lowest(const Tile<T>& tile) { return tile.block.first_token() - tile.first_key - tile.keys + 1; }
  // The part of the band that the table has.
  static extent skipped(const Tile<T>& tile) { return most(0, tile.block.p.lowest - lowest(tile)); }
  static extent counted(const Tile<T>& tile) {
    const extent end =
        least(lowest(tile) + band_rows(tile.block, tile.keys), tile.block.p.lowest + tile.block.p.distances);
    return most(0, end - lowest(tile) - skipped(tile));
  }

  void add(const Tile<T>& tile, T* x) const {
    const Block<T>& block = tile.block;
    const Problem<T>& p = block.p;
    if (!runs(p)) return;
    const extent columns = block.columns, skip = skipped(tile), count = counted(tile);
    clear(band, band_rows(block, tile.keys) * columns);
    const T* from = p.relative_keys.of(0, block.h) + (lowest(tile) + skip - p.lowest) * p.relative_keys.row;
    multiply<T>(count, columns, {p.dim}, {from, p.relative_keys.row, 1}, transposed, columns, band + skip * columns,
        columns, Start::zero);
    for (extent k = 0; k < tile.keys; ++k) {
      const T* diagonal = band + (tile.keys - 1 - k) * columns;
      for (extent i = 0; i < columns; ++i) x[k * columns + i] += diagonal[i * (columns + 1)];
    }
  }

  void gather(const Tile<T>& tile, const T* dx) const {
    const Block<T>& block = tile.block;
    const Problem<T>& p = block.p;
    if (!runs(p)) return;
    const extent columns = block.columns, skip = skipped(tile), count = counted(tile);
    clear(band, band_rows(block, tile.keys) * columns);
    for (extent k = 0; k < tile.keys; ++k) {
      T* diagonal = band + (tile.keys - 1 - k) * columns;
      for (extent i = 0; i < block.rows; ++i) diagonal[i * (columns + 1)] = dx[k * columns + i] * p.relative_scale;
    }
    const T* used = band + skip * columns;
    const extent first = lowest(tile) + skip - p.lowest;
    if (p.d_relative_query)
      multiply<T>(block.rows, width(p), {count}, {used, 1, columns}, keys + first * width(p), width(p), d_rows,
          width(p), Start::given);
    if (p.d_relative_keys)
      multiply<T>(count, width(p), {block.rows}, {used, columns, 1}, rows, width(p),
          p.d_relative_keys.of(block.b, block.h) + first * p.d_relative_keys.row, p.d_relative_keys.row, Start::given);
  }

  void finish(const Block<T>& block) const {
    const Problem<T>& p = block.p;
    if (!runs(p) || !p.d_relative_query) return;
    for (extent i = 0; i < block.rows; ++i)
      for (extent c = 0; c < p.dim; ++c)
        p.d_relative_query.of(block.b, block.h)[(block.first_query + i) * p.d_relative_query.row + c] =
            d_rows[i * width(p) + c];
  }
};

// ---- column: x[k][i] += column[k] ----

template <class T> static void add_column(const Tile<T>& tile, T* x) {
  const Block<T>& block = tile.block;
  if (!block.p.column_term) return;
  for (extent k = 0; k < tile.keys; ++k) {
    const Vector<T> column = splat(block.p.column_term.of(block.b, block.h)[tile.first_key + k]);
    for (extent n = 0; n < block.columns; n += lanes<T>) {
      T* at = x + k * block.columns + n;
      store<T>(at, load(at) + column);
    }
  }
}

template <class T> static void gather_column(const Tile<T>& tile, const T* dx) {
  const Block<T>& block = tile.block;
  const Problem<T>& p = block.p;
  for (extent k = 0; p.d_column_term && k < tile.keys; ++k) {
    Vector<T> sum = zero<T>();
    for (extent n = 0; n < block.columns; n += lanes<T>) sum = sum + load(dx + k * block.columns + n);
    p.d_column_term.of(block.b, block.h)[tile.first_key + k] += sum_of_lanes<T>(sum);
  }
}

// ---- the pattern summed by distance: bins_i[bin(steps)] += P_ij ----

template <class T> struct Bins {
  static bool runs(const Problem<T>& p) { return p.bins > 0; }
  static extent size(const Problem<T>& p) { return padded<T>(p.bins * block_rows<T>); }

  // f(k, i, number of the bin's element [i, bin])
  template <class F> static void each(const Tile<T>& tile, const F& f) {
    const Problem<T>& p = tile.block.p;
    for (extent k = 0; k < tile.keys; ++k)
      for (extent i = tile.first_lane(k); i < tile.block.rows; ++i)
        f(k * tile.block.columns + i, i * p.bins + p.bin_of[table_row(tile.block, i, tile.first_key + k)]);
  }
  static void add(const Tile<T>& tile, const T* pattern, T* sums) {
    each(tile, [&](extent pair, extent at) { sums[at] += pattern[pair]; });
  }
  // d pattern += d sums, read at the bins
  static void read(const Tile<T>& tile, const T* d_sums, T* d_pattern) {
    each(tile, [&](extent pair, extent at) { d_pattern[pair] += d_sums[at]; });
  }
};

}  // namespace whence::tiles::WHENCE_TILES_TARGET
