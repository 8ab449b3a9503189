// Cross-entropy of rows of logits with their targets: log(sum_v e^{x_v}) - x_target, and its backward.
#include <algorithm>

#include "tensor/cpu/kernels.h"
#include "tensor/cpu/rows.h"
#include "tensor/parallel.h"

namespace whence {

// y = e^{x - shift} scale; y may be x.
template <class T> static void scaled_powers(const T* x, index_t width, compute_t<T> shift, compute_t<T> scale, T* y) {
  for (index_t v = 0; v < width; ++v) y[v] = static_cast<T>(math::exp(compute_t<T>(x[v]) - shift) * scale);
}

// log sum e^x = top + log sum e^{x - top}: no power overflows. Not inline: parallel_for compiles its body twice, once
// for one thread, and the compiler contracted products and sums of duals differently in the two.
template <class T> [[gnu::noinline]] static compute_t<T> log_of_powers(const T* x, index_t width) {
  using C = compute_t<T>;
  const C top = maximum_of<C>(x, width);
  return top + math::log(sum_of<C>(width, [x, top](index_t v) { return math::exp(C(x[v]) - top); }));
}

void CpuKernels::cross_entropy(
    const Tensor& logits, const Tensor& target, index_t ignored, const Tensor& norm, const Tensor& loss) {
  if (logits.numel() == 0) return;
  const index_t width = logits.size(-1), *t = target.data<index_t>();
  visit_real("cross_entropy", logits.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    C *norm_of = norm.data<C>(), *loss_of = loss.data<C>();
    parallel_for(target.numel(), rows_per_chunk(4 * width), [&](index_t begin, index_t end) {
      for (index_t row = begin; row < end; ++row) {
        const T* x = logits.data<T>() + row * width;
        norm_of[row] = loss_of[row] = C(0);
        if (t[row] == ignored) continue;
        norm_of[row] = log_of_powers(x, width);
        loss_of[row] = norm_of[row] - C(x[t[row]]);
      }
    });
  });
}

void CpuKernels::cross_entropy_backward(const Tensor& logits, const Tensor& target, index_t ignored, const Tensor& norm,
    const Tensor& dy, double share, const Tensor& dx) {
  if (logits.numel() == 0) return;
  const index_t width = logits.size(-1), *t = target.data<index_t>();
  visit_real("cross_entropy_backward", logits.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const C g = *dy.data<C>() * static_cast<C>(share), *norm_of = norm.data<C>();
    parallel_for(target.numel(), rows_per_chunk(4 * width), [&](index_t begin, index_t end) {
      for (index_t row = begin; row < end; ++row) {
        const T* x = logits.data<T>() + row * width;
        T* out = dx.data<T>() + row * width;
        if (t[row] == ignored) {
          std::fill_n(out, width, T(C(0)));
          continue;
        }
        // e^{x - norm} is the softmax, recomputed. The target's own entry is p - 1, formed before the rounding to T,
        // and before dx is written, which may overwrite x.
        const C shift = norm_of[row];
        const T own = static_cast<T>((math::exp(C(x[t[row]]) - shift) - C(1)) * g);
        scaled_powers(x, width, shift, g, out);
        out[t[row]] = own;
      }
    });
  });
}

}  // namespace whence
