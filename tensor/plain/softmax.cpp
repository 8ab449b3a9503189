// Softmax along rows, and its backward.
#include <limits>

#include "tensor/math.h"
#include "tensor/plain/access.h"

namespace whence {

using plain::In, plain::Out;

// y_j = e^(x_j - top) / sum_l e^(x_l - top),  top = max_l x_l, over the entries that the mask keeps; the others are 0
void Kernels::softmax(const Tensor& x, const Tensor& mask, const Tensor& y) {
  visit_floating("softmax", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const In<T> from(x);
    const In<bool> mask_of(mask);
    const Out<T> to(y);
    for (index_t i = 0; i < to.rows(); ++i) {
      const auto kept = [&](index_t j) { return !mask_of || mask_of[i][j]; };
      C top = C(-std::numeric_limits<double>::infinity()), sum = C(0);
      for (index_t j = 0; j < to.width(); ++j) top = kept(j) ? math::larger(top, from[i][j]) : top;
      for (index_t j = 0; j < to.width(); ++j) sum += kept(j) ? math::exp(from[i][j] - top) : C(0);
      for (index_t j = 0; j < to.width(); ++j) to[i][j] = kept(j) ? math::exp(from[i][j] - top) / sum : C(0);
    }
  });
}

// dx_j = y_j (dy_j - sum_l y_l dy_l)
void Kernels::softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) {
  visit_floating("softmax_backward", y.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const In<T> p(y), g(dy);
    const Out<T> to(dx);
    for (index_t i = 0; i < to.rows(); ++i) {
      C mean = C(0);
      for (index_t j = 0; j < to.width(); ++j) mean += p[i][j] * g[i][j];
      for (index_t j = 0; j < to.width(); ++j) to[i][j] = p[i][j] * (g[i][j] - mean);
    }
  });
}

}  // namespace whence
