// Layer norm and root mean square norm of rows, and their backward.
#include "tensor/kernels/each_row.h"

namespace whence {

// y = (x - mean) rstd weight + bias,  rstd = 1 / sqrt(mean((x - mean)^2) + epsilon); if not centred, mean is 0. The
// squares are of differences from the mean, which do not cancel.
template <bool centred, class C>
WHENCE_ROW void norm_row(
    C epsilon, Row<const C> x, Row<const C> weight, Row<const C> bias, Row<C> y, Row<C> mean, Row<C> rstd) {
  const C count = C(static_cast<double>(x.size())), center = centred ? sum_of(x) / count : C(0);
  const C squares = sum_of<C>(x.size(), [=](index_t j) { return (x[j] - center) * (x[j] - center); });
  const C scale = C(1) / math::sqrt(squares / count + epsilon);
  for (index_t j = 0; j < y.size(); ++j) y[j] = (x[j] - center) * scale * weight[j] + bias[j];
  mean[0] = center, rstd[0] = scale;
}

void Kernels::norm(const Tensor& x, const Tensor& added, const Tensor& weight, const Tensor& bias, double epsilon,
    const Tensor& sum, const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  if (x.numel() == 0) return;
  if (added.defined()) binary(functions::Add{}, x, added, sum);
  visit_floating("norm", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const auto row = mean.defined() ? norm_row<true, C> : norm_row<false, C>;
    Operands(In<T>(added.defined() ? sum : x), In<T>(weight), In<T>(bias), Out<T>(y), Out<C>(mean, 1), Out<C>(rstd, 1))
        .each_row([=](auto... rows) { row(C(epsilon), rows...); });
  });
}

// With n = (x - mean) rstd and g = dy weight:
//   dx = rstd (g - mean(g) - n mean(g n)) + dsum,  dweight = sum over rows of dy n,  dbias = sum over rows of dy
// mean(g) is left out when nothing is centred.
template <bool centred, class C>
WHENCE_ROW void norm_backward_row(Row<const C> x, Row<const C> dy, Row<const C> weight, Row<const C> mean,
    Row<const C> rstd, Row<C> dx, Row<C> dweight, Row<C> dbias) {
  const C count = C(static_cast<double>(x.size())), center = centred ? mean[0] : C(0), scale = rstd[0];
  const auto n = [=](index_t j) { return (x[j] - center) * scale; };
  const auto g = [=](index_t j) { return dy[j] * weight[j]; };
  const C mean_g = centred ? sum_of<C>(x.size(), g) / count : C(0);
  const C mean_gn = sum_of<C>(x.size(), [=](index_t j) { return g(j) * n(j); }) / count;
  for (index_t j = 0; j < x.size(); ++j) dx[j] = scale * (g(j) - mean_g - n(j) * mean_gn);
  for (index_t j = 0; j < x.size(); ++j) dweight[j] += dy[j] * n(j);
  for (index_t j = 0; centred && j < x.size(); ++j) dbias[j] += dy[j];
}

void Kernels::norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
    const Tensor& dsum, const Tensor& dy, const Tensor& dx, const Tensor& dweight, const Tensor& dbias) {
  if (x.numel() == 0) {
    for (const Tensor& of_rows : {dweight, dbias})
      if (of_rows.defined()) fill(of_rows, 0);
    return;
  }
  visit_floating("norm_backward", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const auto row = mean.defined() ? norm_backward_row<true, C> : norm_backward_row<false, C>;
    Operands(In<T>(x), In<T>(dy), In<T>(weight), In<C>(mean, 1), In<C>(rstd, 1), Out<T>(dx), Total<T>(dweight),
        Total<T>(dbias))
        .each_row(row);
  });
  if (dx.defined() && dsum.defined()) binary(functions::Add{}, dx, dsum, dx);
}

}  // namespace whence
