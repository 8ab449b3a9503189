// Sums and maxima over any axes, the index of a row's maximum, and running sums along rows.
#include <limits>

#include "tensor/math.h"
#include "tensor/plain/access.h"

namespace whence {

using plain::In, plain::Out;

// out = sum of x, or max x, over the axes where out has extent 1: `total`, expanded to x's shape, has stride 0 along
// them.
void Kernels::reduce(Reduction f, const Tensor& x, const Tensor& out) {
  visit_floating("reduce", x.dtype(), [&]<class T>(Type<T>) {
    using W = plain::wide_t<T>;
    const bool is_sum = f == Reduction::sum;
    const Tensor totals = Tensor::full(out.shape(), is_sum ? 0 : -std::numeric_limits<double>::infinity(), dtype_of<W>);
    const In<T> from(x);
    const Out<W> total(raw::expand(totals, x.shape()));
    for (index_t i = 0; i < from.rows(); ++i)
      for (index_t j = 0; j < from.width(); ++j) {
        const W before = total[i][j], value = W(from[i][j]);
        total[i][j] = is_sum ? before + value : math::larger(before, value);
      }
    Kernels::copy(totals, out);
  });
}

// out_i = the smallest j with x_ij = max_l x_il; a NaN counts as the largest
void Kernels::argmax(const Tensor& x, const Tensor& out) {
  visit_floating("argmax", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const In<T> from(x);
    const Out<index_t> to(out);
    for (index_t i = 0; i < from.rows(); ++i) {
      index_t best = 0;
      for (index_t j = 1; j < from.width(); ++j) {
        const C value = from[i][j], top = from[i][best];
        if (top == top && (value > top || !(value == value))) best = j;
      }
      to(i) = best;
    }
  });
}

// y_j = sum_{l<=j} x_l, or sum_{l>=j} x_l when reverse
void Kernels::cumulative_sum(const Tensor& x, bool reverse, const Tensor& y) {
  visit_floating("cumulative_sum", x.dtype(), y.dtype(), [&]<class A, class B>(Type<A>, Type<B>) {
    const In<A> from(x);
    const Out<B> to(y);
    for (index_t i = 0; i < to.rows(); ++i) {
      compute_t<A> total = compute_t<A>(0);
      for (index_t step = 0; step < to.width(); ++step) {
        const index_t j = reverse ? to.width() - 1 - step : step;
        to[i][j] = total += from[i][j];
      }
    }
  });
}

}  // namespace whence
