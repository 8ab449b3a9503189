// Small sums beside the gradients of heads (heads_backward.h): over a row before them, over blocks of rows behind them.
#pragma once

#include "cuda/kernels/tiles/head_rows.h"
#include "tensor/math.h"

namespace whence::gpu {

// What backward reads of each row, and what a sink's gradient is the sum of. width / 8 lanes have a row.
template <class T, int width> struct RowSums {
  static constexpr const char* name = "sums of rows";
  static constexpr int threads = head_threads, lanes = width / 8, rows = threads / lanes;
  HeadRows<const T> o, d_o;
  Global<const float> norms;  // [b h queries 2]
  Global<const float> sink;   // [h], or null
  RowBlocks to;
  Global<float> of_sink;  // [b h queries]
  int heads, queries, d;
  WHENCE_HD void operator()(Thread& t) const {
    const int blocks = to.blocks * (RowBlocks::rows / rows), head = static_cast<int>(t.block()) / blocks,
              row = static_cast<int>(t.block()) % blocks * rows + t.index() / lanes, column = t.index() % lanes * 8,
              b = head / heads, h = head % heads;
    Number<float> sum = 0.0f;
    if (row < queries && column < d) {
      const auto x = load_pack<8>(o.of(b, h), row * o.row + column),
                 y = load_pack<8>(d_o.of(b, h), row * d_o.row + column);
      for (int k = 0; k < 8; ++k) sum += from_stored<float>(x.of[k]) * from_stored<float>(y.of[k]);
    }
    for (int mask = lanes / 2; mask > 0; mask /= 2) sum += t.shuffle_xor(sum, mask);
    if (column > 0) return;
    const index_t n = index_t(head) * queries + row;
    const Number<float> top = row < queries ? load<float>(norms, 2 * n) : Number<float>(0.0f),
                        share = row < queries ? load<float>(norms, 2 * n + 1) : Number<float>(0.0f);
    // The pattern of a row that sees nothing is 0.
    const Number<float> norm = share > 0.0f ? top - math::log(share) * log2e : Number<float>(-not_seen);
    store(to.of(head, row), 0, norm), store(to.of(head, row), RowBlocks::rows, sum);
    if (sink && row < queries) store(of_sink, n, -(ex2_approx(load<float>(sink, h) * log2e - norm) * sum));
  }
};

// The gradient of a table, [h distances]: slices of the blocks of queries, added in their order. A slice has the sum of
// pairs `row of the block - key` = n - keys + 1 in its number n.
struct SumSlices {
  static constexpr const char* name = "sums of slices";
  static constexpr int threads = 128;
  Global<const float> slices;  // [count, blocks, keys + rows], of heads first_head, first_head + 1, ... of b h
  Global<float> d_table;       // added to
  HeadFacts facts;
  int distances, lowest;  // of the table as it is
  index_t first_head, count;
  int blocks, rows;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t n = t.block() * threads + t.index(), h = n / distances;
    if (h >= facts.heads) return;
    const int steps = static_cast<int>(n % distances) + lowest, length = facts.keys + rows;
    Number<float> sum = load<float>(d_table, n);
    for (index_t head = 0; head < count; ++head) {
      if ((first_head + head) % facts.heads != h) continue;
      for (int block = 0; block < blocks; ++block) {
        const int at = steps - facts.first_row - block * rows + facts.keys - 1;
        if (at >= 0 && at < length) sum += load<float>(slices, (head * blocks + block) * length + at);
      }
    }
    store(d_table, n, sum);
  }
};

}  // namespace whence::gpu
