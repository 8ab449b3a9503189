// Softmax along rows, and its backward.
#include <limits>

#include "tensor/kernels/each_row.h"

namespace whence {

// y_j = e^(x_j - top) / sum_l e^(x_l - top),  top = max_l x_l. The largest term is 1, so the quotient is safe. y may be x.
template <class C> WHENCE_ROW void softmax_row(Row<C> y, Row<const C> x) {
  const C top = maximum_of(x);
  for (index_t j = 0; j < y.size(); ++j) y[j] = math::exp(x[j] - top);
  const C scale = C(1) / sum_of(y);
  for (index_t j = 0; j < y.size(); ++j) y[j] = y[j] * scale;
}

// Over the entries that the mask keeps: the others count as -infinity, and get 0, also in a row that keeps none.
template <class C> WHENCE_ROW void masked_row(Row<C> y, Row<const C> x, Row<const unsigned char> kept) {
  const C nothing = C(-std::numeric_limits<double>::infinity());
  for (index_t j = 0; j < y.size(); ++j) y[j] = choose(kept[j], x[j], nothing);
  softmax_row<C>(y, y);
  for (index_t j = 0; j < y.size(); ++j) y[j] = choose(kept[j], y[j], C(0));
}

void Kernels::softmax(const Tensor& x, const Tensor& mask, const Tensor& y) {
  if (x.numel() == 0) return;
  visit_floating("softmax", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    if (mask.defined()) return Operands(Out<T>(y), In<T>(x), In<bool>(mask)).each_row(masked_row<C>);
    Operands(Out<T>(y), In<T>(x)).each_row(softmax_row<C>);
  });
}

// dx_j = y_j (dy_j - sum_l y_l dy_l)
template <class C> WHENCE_ROW void softmax_backward_row(Row<C> dx, Row<const C> y, Row<const C> dy) {
  const C mean = sum_of<C>(y.size(), [=](index_t l) { return y[l] * dy[l]; });
  for (index_t j = 0; j < y.size(); ++j) dx[j] = y[j] * (dy[j] - mean);
}

void Kernels::softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) {
  if (y.numel() == 0) return;
  visit_floating("softmax_backward", y.dtype(), [&]<class T>(Type<T>) {
    Operands(Out<T>(dx), In<T>(y), In<T>(dy)).each_row(softmax_backward_row<compute_t<T>>);
  });
}

}  // namespace whence
