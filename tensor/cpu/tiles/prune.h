// Safe pruning: a tile is left out where all that it could add to a row is less than what rounding may change there.
//   A_ij <= B_i = |scale| |q_i| max |k_j| + max table + max column + slope P_i        (Cauchy and Schwarz for the product)
// with the largest of each over the tile's keys. P_i is CoPE_ALiBi's sum of gates down to the tile: it only grows from
// there on, and slope <= 0. The tile is left out where for each row i of its block
//   B_i <= log Z_i - log (2 T / u)                            T keys, u the unit roundoff: 2^-24 in f32, 2^-53 in f64
// Proof. Let S be the keys that row i leaves out. Each has A_ij <= B_i of its tile, so that
//   sum_{j in S} e^{A_ij} <= |S| Z_i u / (2 T) <= Z_i u / 2,
// half of what one rounding of Z_i may change. Forward knows only the part of Z_i that the keys behind the tile made,
// which is less, so that it leaves out no more. The other half of u is for the roundings of the logits and of Z itself,
// as long as they are below log 2 (in f32: |scale| |q| |k| below 10^5); the bound is computed in double, its own do not
// count.                                                                                                           QED
// So o_i is off by at most u max |v_j|. Pairs left out have P_ij <= u / (2 T) each and u / 2 for a row together: any
// gradient misses such terms P_ij (dP_ij - o_i.do_i) alone, dq_i for instance at most u / 2 times the largest
// |scale| |dP_ij - o_i.do_i| |k_j|. Dropout multiplies by 1 / (1 - p). A tile with a key or value that is not finite is
// never left out, nor is any beside a table with a NaN.
#pragma once

#include "tensor/cpu/tiles/scan.h"
#include "tensor/cpu/tiles/softmax.h"
#include "tensor/cpu/tiles/terms.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

template <class T> static bool all_finite(const T* rows, extent rows_row, extent count, extent width) {
  Vector<T> sum = zero<T>();
  for (extent r = 0; r < count; ++r)
    for (extent n = 0; n < width; n += lanes<T>)
      sum = sum + (load(rows + r * rows_row + n) - load(rows + r * rows_row + n));
  return sum_of_lanes<T>(sum) == T(0);
}

template <class T> struct Pruning {
  double *query_length, *log_total;  // per lane: |scale| |q_i|; log Z_i, or less
  // Per tile of keys the largest; where gates are summed, of all keys up to there: the sums below a tile that is left
  // out are not known, and with it all that is below is left out too.
  double *key_length, *column;
  T* table;  // per lane: the largest that the tile's pairs read
  double table_most, margin;
  bool on;
  extent pairs, left_out;

  static extent tiles(const Problem<T>& p) { return (p.keys + tile_keys<T> - 1) / tile_keys<T>; }
  static double* doubles(Cutter<T>& cut, extent count) {
    constexpr auto each = static_cast<extent>(sizeof(double)), mine = static_cast<extent>(sizeof(T));
    return reinterpret_cast<double*>(cut.take((count * each + mine - 1) / mine));
  }
  void take(const Problem<T>& p, Cutter<T>& cut) {
    if (!p.count_pairs) return;
    query_length = doubles(cut, block_rows<T>), log_total = doubles(cut, block_rows<T>);
    key_length = doubles(cut, tiles(p)), column = doubles(cut, tiles(p));
    table = cut.take(block_rows<T>);
  }

  // Squares that vanish in a double are less than what is added.
  static double length(const T* row, extent count) {
    double sum = 1e-290;
#pragma omp simd reduction(+ : sum)
    for (extent n = 0; n < count; ++n) sum += static_cast<double>(row[n]) * static_cast<double>(row[n]);
    return __builtin_sqrt(sum);
  }
  // The larger one, NaN if one is: no comparison with it leaves anything out.
  static double larger_of(double a, double b) { return a > b || a != a ? a : b; }

  // Of the first `seen` keys of a head. Values: packed rows.
  void prepare(const Problem<T>& p, extent b, extent h, extent seen, const T* values, extent value_width) {
    pairs = left_out = 0;
    // Terms without a bound: CoPE's tables, products with distances, slopes that raise far keys.
    on = p.count_pairs && !p.relative_query && (!p.scans || (p.position_slopes && p.position_slopes[h] <= T(0)));
    if (!on) return;
    constexpr double unit = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;
    margin = __builtin_log(2 * static_cast<double>(p.keys) / unit);
    table_most = 0;  // what a table without that distance adds
    for (extent n = 0; p.distance_table && n < p.distances; ++n)
      table_most = larger_of(table_most, static_cast<double>(p.distance_table.of(0, h)[n]));
    on = !__builtin_isnan(table_most);
    if (!on) return;
    for (extent first = 0, tile = 0; first < seen; first += tile_keys<T>, ++tile) {
      const extent count = least(tile_keys<T>, seen - first);
      const bool of_all_before = p.scans && tile > 0;
      double longest = of_all_before ? key_length[tile - 1] : 0;
      double highest = !p.column_term ? 0 : of_all_before ? column[tile - 1] : -1e300;
      for (extent key = first; key < first + count; ++key) {
        longest = larger_of(longest, length(p.key.of(b, h) + key * p.key.row, p.dim));
        if (p.column_term) highest = larger_of(highest, static_cast<double>(p.column_term.of(b, h)[key]));
      }
      const double infinite = __builtin_inf();
      key_length[tile] = all_finite(values + first * value_width, value_width, count, value_width) ? longest : infinite;
      column[tile] = highest;
    }
  }

  void begin(const Block<T>& block) {
    const Problem<T>& p = block.p;
    const T* from = on ? p.query.of(block.b, block.h) + block.first_query * p.query.row : nullptr;
    for (extent i = 0; on && i < block.rows; ++i)
      query_length[i] = __builtin_fabs(static_cast<double>(p.scale)) * length(from + i * p.query.row, p.dim);
  }
  // While Z is being summed: e^top times a power of two that is not above the sum; NaN before there is one.
  void read(const RunningSoftmax<T>& softmax, extent rows) {
    for (extent i = 0; i < rows; ++i) {
      const auto total = static_cast<double>(softmax.total[i]);
      const auto exponent = static_cast<double>(__builtin_bit_cast(std::int64_t, total) >> 52) - 1023;
      log_total[i] =
          total > 0 ? static_cast<double>(softmax.top[i]) + exponent * 0.6931471805599453 : __builtin_nan("");
    }
  }
  // When it is known.
  void read(const T* log_sum, extent rows) {
    for (extent i = 0; i < rows; ++i) log_total[i] = static_cast<double>(log_sum[i]);
  }

  // Whether the tile is left out, after read().
  bool leaves_out(const Tile<T>& tile, const ByDistance<T>& by_distance, const Scan<T>& scan) {
    const Block<T>& block = tile.block;
    const Problem<T>& p = block.p;
    if (!on) return false;
    pairs += tile.keys * block.rows;
    if (p.scans || !by_distance.largest(tile, table))
      for (extent i = 0; i < block.rows; ++i) table[i] = T(static_cast<T>(table_most));
    const extent number = tile.first_key / tile_keys<T>;
    const double key = key_length[number], rest = column[number] + margin;
    bool all = true;
    for (extent i = 0; i < block.rows; ++i) {
      const double gates = p.scans ? static_cast<double>(scan.slope) * static_cast<double>(scan.sums[i]) : 0;
      all &= query_length[i] * key + static_cast<double>(table[i]) + gates + rest <= log_total[i];
    }
    if (all) left_out += tile.keys * block.rows;
    return all;
  }

  void finish(const Problem<T>& p) const {
    if (on) p.count_pairs(p.counts, pairs, left_out);
  }
};

}  // namespace whence::tiles::WHENCE_TILES_TARGET
