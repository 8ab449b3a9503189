// Cross-entropy of rows of logits with their targets, and its backward.
#include <limits>

#include "tensor/math.h"
#include "tensor/plain/access.h"

namespace whence {

using plain::In, plain::Out;

void Kernels::cross_entropy(
    const Tensor& logits, const Tensor& target, index_t ignored, const Tensor& norm, const Tensor& loss) {
  visit_floating("cross_entropy", logits.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const In<T> x(logits);
    const In<index_t> t(target);
    const Out<C> norms(norm), losses(loss);
    for (index_t i = 0; i < x.rows(); ++i) {
      C top = C(-std::numeric_limits<double>::infinity()), sum = C(0);
      for (index_t v = 0; v < x.width(); ++v) top = math::larger(top, x[i][v]);
      for (index_t v = 0; v < x.width(); ++v) sum += math::exp(x[i][v] - top);
      const bool counts = t(i) != ignored;
      norms[i][0] = counts ? top : C(0), norms[i][1] = counts ? sum : C(1);
      losses(i) = counts ? math::log(sum) - (x[i][t(i)] - top) : C(0);
    }
  });
}

void Kernels::cross_entropy_backward(const Tensor& logits, const Tensor& target, index_t ignored, const Tensor& norm,
    const Tensor& dy, double share, const Tensor& dx) {
  visit_floating("cross_entropy_backward", logits.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const In<T> x(logits);
    const In<index_t> t(target);
    const In<C> norms(norm), g(dy);
    const Out<T> to(dx);
    for (index_t i = 0; i < x.rows(); ++i)
      for (index_t v = 0; v < x.width(); ++v) {
        const C own = C(v == t(i) ? 1 : 0);
        to[i][v] = t(i) == ignored ? C(0) : g(0) * C(share) * (math::exp(x[i][v] - norms[i][0]) / norms[i][1] - own);
      }
  });
}

}  // namespace whence
