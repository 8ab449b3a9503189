// Reading a table at real-valued positions, and its gradients.
#include "tensor/lookup.h"

#include "tensor/kernels/each_row.h"

namespace whence {

// y_j = (1-w) t[a] + w t[c],  a = floor(p_j),  c = ceil(p_j),  w = p_j - a,  p clamped to [0, n-1]  (tensor/lookup.h)
template <class C> WHENCE_ROW void lerp_row(Row<C> y, Row<const C> p, Row<const C> t) {
  for (index_t j = 0; j < y.size(); ++j) {
    const PlaceInTable<C> at(p[j], t.size());
    y[j] = (C(1) - at.share) * t[at.below] + at.share * t[at.above()];
  }
}

void Kernels::lerp_at(const Tensor& table, const Tensor& position, const Tensor& y) {
  if (y.numel() == 0) return;
  visit_floating("lerp_at", table.dtype(), position.dtype(), [&]<class T, class P>(Type<T>, Type<P>) {
    Operands(Out<T>(y), In<P>(position), In<T>(table)).each_row(lerp_row<compute_t<T>>, 2);
  });
}

// dt[a] += (1-w) dy_j,  dt[c] += w dy_j,  dp_j = (t[c] - t[a]) dy_j
// In blocks, so that all but the sums are vector code. Neighbouring positions are often between the same rows (CoPE's
// gates are below 1): their shares are summed in registers.
template <class C>
WHENCE_ROW void lerp_backward_row(Row<const C> p, Row<const C> t, Row<const C> dy, Row<C> dt, Row<C> dp) {
  constexpr index_t block = 128;
  std::int32_t a[block];
  C low[block], high[block];
  std::fill_n(dt.first, dt.size(), C(0));
  for (index_t begin = 0; begin < p.size(); begin += block) {
    const index_t count = std::min(block, p.size() - begin);
    for (index_t j = 0; j < count; ++j) {
      const PlaceInTable<C> at(p[begin + j], t.size());
      const C g = dy[begin + j];
      dp[begin + j] = (t[at.above()] - t[at.below]) * g;
      a[j] = at.below, low[j] = (C(1) - at.share) * g, high[j] = at.share * g;
    }
    for (index_t j = 0; j < count;) {
      const std::int32_t n = a[j];
      C below = low[j], above = high[j];
      for (++j; j < count && a[j] == n; ++j) below += low[j], above += high[j];
      dt[n] += below;
      if (n + 1 < dt.size()) dt[n + 1] += above;
    }
  }
}

void Kernels::lerp_at_backward(
    const Tensor& table, const Tensor& position, const Tensor& dy, const Tensor& dtable, const Tensor& dposition) {
  if (table.numel() == 0) return;
  visit_floating("lerp_at", table.dtype(), position.dtype(), [&]<class T, class P>(Type<T>, Type<P>) {
    Operands(In<P>(position), In<T>(table), In<T>(dy), Out<T>(dtable), Out<P>(dposition))
        .each_row(lerp_backward_row<compute_t<T>>, 4);
  });
}

}  // namespace whence
