// Layer norm and root mean square norm of rows, and their backward.
#include "tensor/math.h"
#include "tensor/plain/access.h"

namespace whence {

using plain::In, plain::Out;

// y = (x - mean) rstd weight + bias,  rstd = 1 / sqrt(mean((x - mean)^2) + epsilon); if `mean` is undefined, mean is 0
void Kernels::norm(const Tensor& x, const Tensor& added, const Tensor& weight, const Tensor& bias, double epsilon,
    const Tensor& sum, const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  if (x.numel() == 0) return;
  if (added.defined()) Kernels::binary(functions::Add{}, x, added, sum);
  visit_floating("norm", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const In<T> from(added.defined() ? sum : x), gain(weight), shift(bias);
    const Out<T> to(y);
    const Out<C> means(mean), scales(rstd);
    const C count = C(static_cast<double>(to.width()));
    for (index_t i = 0; i < to.rows(); ++i) {
      C center = C(0), squares = C(0);
      for (index_t j = 0; means && j < to.width(); ++j) center += from[i][j];
      center /= count;
      for (index_t j = 0; j < to.width(); ++j) squares += (from[i][j] - center) * (from[i][j] - center);
      const C scale = C(1) / math::sqrt(squares / count + C(epsilon));
      for (index_t j = 0; j < to.width(); ++j)
        to[i][j] = (from[i][j] - center) * scale * gain[0][j] + (shift ? shift[0][j] : C(0));
      if (means) means(i) = center;
      scales(i) = scale;
    }
  });
}

// With n = (x - mean) rstd and g = dy weight:
//   dx = rstd (g - mean(g) - n mean(g n)) + dsum,  dweight = sum over rows of dy n,  dbias = sum over rows of dy
// mean(g) is left out when nothing is centred.
void Kernels::norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
    const Tensor& dsum, const Tensor& dy, const Tensor& dx, const Tensor& dweight, const Tensor& dbias) {
  visit_floating("norm_backward", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    using W = plain::wide_t<T>;
    const In<T> from(x), gain(weight), beside(dsum), g(dy);
    const In<C> means(mean), scales(rstd);
    const Tensor sums = Tensor::zeros({2, x.size(-1)}, dtype_of<W>);
    const Out<T> to(dx);
    const Out<W> sum(sums);
    const C count = C(static_cast<double>(from.width()));
    for (index_t i = 0; i < from.rows(); ++i) {
      const auto normed = [&](index_t j) { return (from[i][j] - (means ? means(i) : C(0))) * scales(i); };
      C mean_g = C(0), mean_gn = C(0);
      for (index_t j = 0; j < from.width(); ++j) {
        mean_g += means ? g[i][j] * gain[0][j] : C(0);
        mean_gn += g[i][j] * gain[0][j] * normed(j);
        sum[0][j] += W(g[i][j] * normed(j)), sum[1][j] += W(g[i][j]);
      }
      mean_g /= count, mean_gn /= count;
      for (index_t j = 0; to && j < from.width(); ++j)
        to[i][j] = scales(i) * (g[i][j] * gain[0][j] - mean_g - normed(j) * mean_gn) + (beside ? beside[i][j] : C(0));
    }
    if (dweight.defined()) Kernels::copy(raw::select(sums, 0, 0), dweight);
    if (dbias.defined()) Kernels::copy(raw::select(sums, 0, 1), dbias);
  });
}

}  // namespace whence
