// Reading a table at real-valued positions, and the gradients of that.
//   y_j  = (1-w) t[a] + w t[c],   a = floor(p_j),  c = ceil(p_j),  w = p_j - a        p_j held in [0, n-1]
#include "tensor/lerp.h"
#include "tensor/cpu/kernels.h"
#include "tensor/device/launch.h"

namespace whence {
namespace {

// Positions that are worked on side by side, so that all but the reads of the table are vector code.
constexpr index_t block = 128;

// Where the positions of a block lie, and what the table holds in the rows below and above.
template <class T> struct Places {
  using C = compute_t<T>;
  std::int32_t below[block], above[block];
  C share[block], low[block], high[block];

  void find(const T* __restrict table, const T* __restrict position, index_t rows, index_t count) {
    for (index_t j = 0; j < count; ++j) {
      const Place<C> at(C(position[j]), rows);
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

inline index_t at_most_block(index_t left) { return left < block ? left : block; }

template <class T> struct LerpForward {
  const T *table, *position;
  T* y;
  index_t rows, width;
  void operator()(index_t row) const {
    using C = compute_t<T>;
    Places<T> at;
    for (index_t begin = row * width; begin < (row + 1) * width; begin += block) {
      const index_t count = at_most_block((row + 1) * width - begin);
      at.find(table + row * rows, position + begin, rows, count);
      for (index_t j = 0; j < count; ++j)
        y[begin + j] = static_cast<T>((C(1) - at.share[j]) * at.low[j] + at.share[j] * at.high[j]);
    }
  }
};

template <class T> struct LerpBackward {
  using C = compute_t<T>;
  const T *table, *position, *dy;
  T *dtable, *dposition;
  C* sums;  // [rows of the table] per row; dtable itself unless T is 16 bit: one rounding at the end
  index_t rows, width;

  void operator()(index_t row) const {
    C* sum = sums + row * rows;
    for (index_t n = 0; n < rows; ++n) sum[n] = C(0);
    Places<T> at;
    for (index_t begin = row * width; begin < (row + 1) * width; begin += block) {
      const index_t count = at_most_block((row + 1) * width - begin);
      at.find(table + row * rows, position + begin, rows, count);
      // y = (1-w) t[a] + w t[c]
      const T* __restrict g = dy + begin;
      T* __restrict dp = dposition + begin;
      for (index_t j = 0; j < count; ++j) {
        dp[j] = static_cast<T>((at.high[j] - at.low[j]) * C(g[j]));
        at.low[j] = (C(1) - at.share[j]) * C(g[j]);  // from here on: what goes to the row below, and to the row above
        at.high[j] = at.share[j] * C(g[j]);
      }
      add_runs(at, count, sum);
    }
    if constexpr (!std::is_same_v<T, C>)
      for (index_t n = 0; n < rows; ++n) dtable[row * rows + n] = static_cast<T>(sum[n]);
  }

  // Neighbouring positions often lie between the same rows (CoPE's gates are below 1): shares wait in registers.
  void add_runs(const Places<T>& at, index_t count, C* sum) const {
    for (index_t j = 0; j < count;) {
      const std::int32_t n = at.below[j];
      C low = at.low[j], high = at.high[j];
      for (++j; j < count && at.below[j] == n; ++j) low += at.low[j], high += at.high[j];
      sum[n] += low;
      if (n + 1 < rows) sum[n + 1] += high;
    }
  }
};

}  // namespace

void CpuKernels::lerp_at(const Tensor& table, const Tensor& position, const Tensor& y) {
  visit_floating("lerp_at", position.dtype(), [&]<class T>(Type<T>) {
    const index_t rows = table.size(-1), width = position.size(-1);
    launch("lerp_at", y.device(), table.numel() / rows,
        LerpForward<T>{table.data<T>(), position.data<T>(), y.data<T>(), rows, width}, 2 * width);
  });
}

void CpuKernels::lerp_at_backward(
    const Tensor& table, const Tensor& position, const Tensor& dy, const Tensor& dtable, const Tensor& dposition) {
  visit_floating("lerp_at", position.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const index_t rows = table.size(-1), width = position.size(-1);
    const Tensor sums = std::is_same_v<T, C> ? dtable : Tensor::empty(dtable.shape(), dtype_of<C>);
    launch("lerp_at", dy.device(), table.numel() / rows,
        LerpBackward<T>{table.data<T>(), position.data<T>(), dy.data<T>(), dtable.data<T>(), dposition.data<T>(),
            sums.data<C>(), rows, width},
        rows + 4 * width);
  });
}

}  // namespace whence
