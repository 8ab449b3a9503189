// Gradients of the head mix's small operands, from the sums that each warp has stored (mix_backward.h).
#pragma once

#include "cuda/kernels/tiles/mix_backward.h"

namespace whence::gpu {

// Sums of warps' slices, in order, as gradients: dW1 and dW2, which are summed already, in the operands' order.
template <class T> struct PutMixWeights {
  using C = compute_t<T>;
  static constexpr const char* name = "weights of the mix";
  static constexpr int threads = 128;
  Global<const C> sums;               // as a warp's slice
  SmallOperand<T> d_output, d_input;  // or null
  int heads, width, taps, parts;
  WHENCE_HD void operator()(Thread& t) const {
    const int n = static_cast<int>(t.block()) * threads + t.index(), d = n % mix_hidden,
              h = head_of_column(n / mix_hidden % mix_heads), k = n / (mix_hidden * mix_heads);
    if (d >= width || h >= heads) return;
    const Number<C> sum = load<C>(sums, n);
    if (k < taps) {
      if (d_output) d_output.set(index_t(h * width + d) * taps + k, sum);
    } else if (d_input) {
      const int of_tap = (k - taps) / parts, part = (k - taps) % parts;
      d_input.set(index_t((d * parts + part) * heads + h) * taps + of_tap, sum);
    }
  }
};

// Sums by distance of a table [rows, count], of heads or of hidden numbers. Slices are of the same rows of sequences.
template <class C, bool heads> struct MixDistances {
  static constexpr int columns = heads ? mix_heads : mix_hidden;
  Global<const C> slices = nullptr;  // [block of MixFacts::blocks, warp, mix_slice_rows, columns]
  Global<C> to = nullptr;
  int rows = 0, lowest = 0, count = 0;
  int first_distance = 0;  // steps from key 0 to the group's first query; less for columns that are ahead
  index_t numbers() const { return index_t(count) * columns; }
  WHENCE_HD void sum(index_t n, int walks, int strips, int sequences, bool first) const {
    const int column = static_cast<int>(n % columns), m = static_cast<int>(n / columns),
              line = heads ? head_of_column(column) : column;
    if (m >= count || line >= rows) return;
    const index_t at = index_t(line) * count + m;
    Number<C> total = first ? Number<C>(0.0f) : load<C>(to, at);
    for (int strip = 0; strip < strips; ++strip)
      for (int walk = 0; walk < walks; ++walk) {
        const int row = m + lowest - first_distance - 64 * strip + mix_walk_keys * (walk + 1) - mix_tile;
        if (row < 0 || row >= mix_slice_rows) continue;
        for (int sequence = 0; sequence < sequences; ++sequence)
          for (int warp = 0; warp < head_warps; ++warp) {
            const index_t slice = ((index_t(sequence) * strips + strip) * walks + walk) * head_warps + warp;
            total += load<C>(slices, (slice * mix_slice_rows + row) * columns + column);
          }
      }
    store(to, at, total);
  }
};
// A thread sums a number of the table, or one of u.
template <class C> struct SumMixSlices {
  static constexpr const char* name = "sums of the mix by distance";
  static constexpr int threads = 128;
  MixDistances<C, true> table;
  MixDistances<C, false> u;
  int walks, strips, sequences;
  bool first;  // no rows came before
  index_t of_table;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t n = t.block() * threads + t.index();
    n < of_table ? table.sum(n, walks, strips, sequences, first) : u.sum(n - of_table, walks, strips, sequences, first);
  }
};

// The gradient of u's tables of columns near the first key, [left width count]: for each distance one row of a
// sequence.
template <class C> struct SumFirstColumns {
  static constexpr const char* name = "sums of first columns";
  static constexpr int threads = 128;
  Global<const C> of_first;  // [b left queries mix_hidden]
  Global<const std::int32_t> present;
  Global<C> to;
  int batch, left, width, queries, first_row, lowest, count;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t n = t.block() * threads + t.index();
    if (n >= index_t(left) * width * count) return;
    const int distance = static_cast<int>(n % count) + lowest, d = static_cast<int>(n / count % width),
              e = static_cast<int>(n / count / width);
    Number<C> sum = 0.0f;
    for (int b = 0; b < batch; ++b) {
      const int query = distance + (present ? int(present[b * 2]) : 0) + e - first_row;
      if (query >= 0 && query < queries)
        sum += load<C>(of_first, ((index_t(b) * left + e) * queries + query) * mix_hidden + d);
    }
    store(to, n, sum);
  }
};

}  // namespace whence::gpu
