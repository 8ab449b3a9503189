// Reading a table at real-valued positions, and its gradients.
//   y_j  = (1-w) t[a] + w t[c],   a = floor(p_j),  c = ceil(p_j),  w = p_j - a        p_j clamped to [0, n-1]
#include "tensor/lerp.h"

#include <algorithm>
#include <vector>

#include "tensor/cpu/block.h"
#include "tensor/cpu/kernels.h"
#include "tensor/parallel.h"

namespace whence {
namespace {

// Positions that are processed together, so that all but the reads of the table are vector code.
constexpr index_t block = 128;

// The rows that each position of a block is between, and the table's numbers in them.
template <class C> struct Places {
  std::int32_t below[block], above[block];
  C share[block], low[block], high[block];

  template <class T, class P>
  void find(const T* __restrict table, const P* __restrict position, index_t rows, index_t count) {
    for (index_t j = 0; j < count; ++j) {
      const PlaceInTable<C> at(C(position[j]), rows);
      below[j] = at.below;
      above[j] = at.above();
      share[j] = at.share;
    }
    for (index_t j = 0; j < count; ++j) {
      low[j] = C(table[below[j]]);
      high[j] = C(table[above[j]]);
    }
  }
};

// Neighbouring positions are often between the same rows (CoPE's gates are below 1): their shares are summed in
// registers.
template <class C> void add_runs(const Places<C>& at, index_t count, C* sum, index_t rows) {
  for (index_t j = 0; j < count;) {
    const std::int32_t n = at.below[j];
    C low = at.low[j], high = at.high[j];
    for (++j; j < count && at.below[j] == n; ++j) low += at.low[j], high += at.high[j];
    sum[n] += low;
    if (n + 1 < rows) sum[n + 1] += high;
  }
}

// Calls f(begin, count) for each block of [begin, end).
template <class F> void for_blocks(index_t begin, index_t end, const F& f) {
  for (; begin < end; begin += block) f(begin, std::min(block, end - begin));
}

}  // namespace

void CpuKernels::lerp_at(const Tensor& table, const Tensor& position, const Tensor& y) {
  const index_t rows = table.size(-1), width = position.size(-1);
  visit_real("lerp_at", table.dtype(), position.dtype(), [&]<class T, class P>(Type<T>, Type<P>) {
    using C = compute_t<T>;
    const T* t = table.data<T>();
    const P* p = position.data<P>();
    T* out = y.data<T>();
    parallel_for(table.numel() / rows, rows_per_chunk(2 * width), [&](index_t first, index_t last) {
      Places<C> at;
      for (index_t row = first; row < last; ++row)
        for_blocks(row * width, (row + 1) * width, [&](index_t begin, index_t count) {
          at.find(t + row * rows, p + begin, rows, count);
          for (index_t j = 0; j < count; ++j)
            out[begin + j] = static_cast<T>((C(1) - at.share[j]) * at.low[j] + at.share[j] * at.high[j]);
        });
    });
  });
}

void CpuKernels::lerp_at_backward(
    const Tensor& table, const Tensor& position, const Tensor& dy, const Tensor& dtable, const Tensor& dposition) {
  const index_t rows = table.size(-1), width = position.size(-1);
  visit_real("lerp_at", table.dtype(), position.dtype(), [&]<class T, class P>(Type<T>, Type<P>) {
    using C = compute_t<T>;
    const T *t = table.data<T>(), *dy_of = dy.data<T>();
    const P* p = position.data<P>();
    T* dt = dtable.data<T>();
    P* dp_of = dposition.data<P>();
    parallel_for(table.numel() / rows, rows_per_chunk(rows + 4 * width), [&](index_t first, index_t last) {
      Places<C> at;
      std::vector<C> sum(static_cast<std::size_t>(rows));
      for (index_t row = first; row < last; ++row) {
        std::fill(sum.begin(), sum.end(), C(0));
        for_blocks(row * width, (row + 1) * width, [&](index_t begin, index_t count) {
          at.find(t + row * rows, p + begin, rows, count);
          // y = (1-w) t[a] + w t[c]
          const T* __restrict g = dy_of + begin;
          P* __restrict dp = dp_of + begin;
          for (index_t j = 0; j < count; ++j) {
            dp[j] = static_cast<P>((at.high[j] - at.low[j]) * C(g[j]));
            at.low[j] = (C(1) - at.share[j]) * C(g[j]);  // now low and high hold the gradients of their rows
            at.high[j] = at.share[j] * C(g[j]);
          }
          add_runs(at, count, sum.data(), rows);
        });
        store_block(sum.data(), rows, dt + row * rows, 1);  // 16 bits: one rounding at the end
      }
    });
  });
}

}  // namespace whence
