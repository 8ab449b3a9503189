// Small sums beside the gradients of heads (heads_backward.h): over a row before them, over blocks of rows behind them.
#pragma once

#include "cuda/kernels/tiles/head_rows.h"

namespace whence::gpu {

// delta of each row, and what a sink's gradient is the sum of.
template <class T> struct RowDelta {
  static constexpr const char* name = "delta of rows";
  static constexpr int threads = head_threads;
  HeadRows<const T> o, d_o;
  Global<const float> norms;  // [b h queries 2]
  Global<const float> sink;   // [h], or null
  Global<float> delta, of_sink;
  int heads, queries, d;
  index_t count;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t row = t.block() * head_warps + t.warp(), head = row / queries;
    if (row >= count) return;
    const index_t at = o.of(head / heads, head % heads) + row % queries * o.row,
                  d_at = d_o.of(head / heads, head % heads) + row % queries * d_o.row;
    Number<float> sum = 0.0f;
    for (int c = t.lane(); c < d; c += 32) sum += load<float>(o.at, at + c) * load<float>(d_o.at, d_at + c);
    sum = warp_reduce(t, sum, Plus{});
    if (t.lane() > 0) return;
    store(delta, row, sum);
    if (!sink) return;
    const Number<float> power = ex2_approx(load<float>(sink, head % heads) * log2e - load<float>(norms, 2 * row));
    store(of_sink, row, -(power * load<float>(norms, 2 * row + 1) * sum));
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
  index_t first_head, count;
  int blocks, rows;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t n = t.block() * threads + t.index(), h = n / facts.distances;
    if (h >= facts.heads) return;
    const int steps = static_cast<int>(n % facts.distances) + facts.lowest, length = facts.keys + rows;
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
