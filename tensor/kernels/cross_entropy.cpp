// Cross-entropy of rows of logits with their targets, and its backward.
#include "tensor/kernels/each_row.h"

namespace whence {

// norm = (top, total),  top = max_v x_v,  total = sum_v e^(x_v - top),  loss = log(total) - (x_target - top)
// The two are kept apart: rounded to the size of top, their norm top + log(total) would lose the logarithm.
void Kernels::cross_entropy(
    const Tensor& logits, const Tensor& target, index_t ignored, const Tensor& norm, const Tensor& loss) {
  if (logits.numel() == 0) return;
  visit_floating("cross_entropy", logits.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const auto row = [=](auto x, auto t, auto norm_of, auto loss_of) {
      norm_of[0] = loss_of[0] = C(0), norm_of[1] = C(1);
      if (t[0] == ignored) return;
      const C top = maximum_of<C>(x.first, x.size());
      const C total = sum_of<C>(x.size(), [=](index_t v) { return math::exp(static_cast<C>(x[v]) - top); });
      norm_of[0] = top, norm_of[1] = total;
      loss_of[0] = math::log(total) - (static_cast<C>(x[t[0]]) - top);
    };
    Operands(In<T, T>(logits), In<index_t>(target, 1), Out<C>(norm, 2), Out<C>(loss, 1)).each_row(row, 4);
  });
}

// dx_v = dy share (e^(x_v - top) / total - [v = target])
void Kernels::cross_entropy_backward(const Tensor& logits, const Tensor& target, index_t ignored, const Tensor& norm,
    const Tensor& dy, double share, const Tensor& dx) {
  if (logits.numel() == 0) return;
  visit_floating("cross_entropy_backward", logits.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const C g = *dy.data<C>() * static_cast<C>(share);
    const auto row = [=](auto x, auto t, auto norm_of, auto to) {
      if (t[0] == ignored) return std::fill_n(to.first, to.size(), T(C(0))), void();
      const C top = norm_of[0], scale = g / norm_of[1];
      const C own = math::exp(static_cast<C>(x[t[0]]) - top) / norm_of[1];  // before dx is written, which may be x
      for (index_t v = 0; v < x.size(); ++v) to[v] = static_cast<T>(math::exp(static_cast<C>(x[v]) - top) * scale);
      to[t[0]] = static_cast<T>((own - C(1)) * g);
    };
    Operands(In<T, T>(logits), In<index_t>(target, 1), In<C>(norm, 2), Out<T, T>(dx)).each_row(row, 4);
  });
}

}  // namespace whence
