// Cross-entropy of rows of logits with their targets, and its backward (tensor/kernels.h).
#include <algorithm>

#include "tensor/cpu/kernels.h"
#include "tensor/cpu/rows.h"
#include "tensor/parallel.h"

namespace whence {

// y = e^{x - shift} scale; y may be x.
template <class T> static void scaled_powers(const T* x, index_t width, compute_t<T> shift, compute_t<T> scale, T* y) {
  for (index_t v = 0; v < width; ++v) y[v] = static_cast<T>(math::exp(compute_t<T>(x[v]) - shift) * scale);
}

// Not inline: parallel_for compiles its body twice, once for one thread, and the compiler contracted products and sums
// of duals differently in the two.
template <class T>
[[gnu::noinline]] static compute_t<T> loss_of_row(const T* x, index_t width, index_t target, compute_t<T>* norm) {
  using C = compute_t<T>;
  const C top = norm[0] = maximum_of<C>(x, width);
  norm[1] = sum_of<C>(width, [x, top](index_t v) { return math::exp(C(x[v]) - top); });
  return math::log(norm[1]) - (C(x[target]) - top);
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
        norm_of[2 * row] = loss_of[row] = C(0), norm_of[2 * row + 1] = C(1);
        if (t[row] == ignored) continue;
        loss_of[row] = loss_of_row(logits.data<T>() + row * width, width, t[row], norm_of + 2 * row);
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
        // The target's own entry is p - 1, formed before the rounding to T, and before dx is written, which may
        // overwrite x.
        const C top = norm_of[2 * row], total = norm_of[2 * row + 1];
        const T own = static_cast<T>((math::exp(C(x[t[row]]) - top) / total - C(1)) * g);
        scaled_powers(x, width, top, C(g / total), out);
        out[t[row]] = own;
      }
    });
  });
}

}  // namespace whence
