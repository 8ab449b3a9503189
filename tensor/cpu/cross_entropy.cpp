// Cross-entropy of rows of logits with their targets: log(sum_v e^{x_v}) - x_target, and its backward.
#include "tensor/cpu/kernels.h"
#include "tensor/cpu/rows.h"
#include "tensor/device/launch.h"

namespace whence {
namespace {

constexpr int lanes = 8;  // partial sums, so that the compiler may add side by side and the order is still ours

template <class C, class T> C log_sum_exp(const T* x, index_t width) {
  // log sum e^x = top + log sum e^{x - top}: no power overflows
  const C largest = maximum_of<C>(x, width);
  C sums[lanes] = {};
  index_t v = 0;
  for (; v + lanes <= width; v += lanes)
    for (int lane = 0; lane < lanes; ++lane) sums[lane] += math::exp(C(x[v + lane]) - largest);
  for (; v < width; ++v) sums[0] += math::exp(C(x[v]) - largest);
  C total(0);
  for (int lane = 0; lane < lanes; ++lane) total += sums[lane];
  return largest + math::log(total);
}

template <class T> struct LossRow {
  const T* logits;
  const index_t* target;
  compute_t<T>*norm, *loss;
  index_t width, ignored;
  void operator()(index_t row) const {
    using C = compute_t<T>;
    const T* x = logits + row * width;
    const bool counts = target[row] != ignored;
    norm[row] = counts ? log_sum_exp<C>(x, width) : C(0);
    loss[row] = counts ? norm[row] - C(x[target[row]]) : C(0);
  }
};

template <class T> struct GradientRow {
  const T* logits;
  const index_t* target;
  const compute_t<T>*norm, *dy;
  T* dx;
  index_t width, ignored;
  compute_t<T> share;
  void operator()(index_t row) const {
    using C = compute_t<T>;
    const T* x = logits + row * width;
    T* out = dx + row * width;
    const bool counts = target[row] != ignored;
    const C g = counts ? *dy * share : C(0), shift = norm[row];
    if (!counts) {
      for (index_t v = 0; v < width; ++v) out[v] = static_cast<T>(C(0));
      return;
    }
    // e^{x - norm} is the softmax, recomputed; the target's own entry is p - 1, formed before the rounding to T, and
    // before dx is written, which may lie where x does
    const index_t t = target[row];
    const T own = static_cast<T>((math::exp(C(x[t]) - shift) - C(1)) * g);
    for (index_t v = 0; v < width; ++v) out[v] = static_cast<T>(math::exp(C(x[v]) - shift) * g);
    out[t] = own;
  }
};

}  // namespace

void CpuKernels::cross_entropy(
    const Tensor& logits, const Tensor& target, index_t ignored, const Tensor& norm, const Tensor& loss) {
  if (logits.numel() == 0) return;
  const index_t width = logits.size(-1);
  visit_floating("cross_entropy", logits.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    launch("cross_entropy", logits.device(), target.numel(),
        LossRow<T>{logits.data<T>(), target.data<index_t>(), norm.data<C>(), loss.data<C>(), width, ignored},
        4 * width);
  });
}

void CpuKernels::cross_entropy_backward(const Tensor& logits, const Tensor& target, index_t ignored, const Tensor& norm,
    const Tensor& dy, double share, const Tensor& dx) {
  if (logits.numel() == 0) return;
  const index_t width = logits.size(-1);
  visit_floating("cross_entropy_backward", logits.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    launch("cross_entropy", logits.device(), target.numel(),
        GradientRow<T>{logits.data<T>(), target.data<index_t>(), norm.data<C>(), dy.data<C>(), dx.data<T>(), width,
            ignored, static_cast<C>(share)},
        4 * width);
  });
}

}  // namespace whence
