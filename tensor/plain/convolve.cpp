// Convolution of rows along their keys (tensor/convolution.h).
#include "tensor/convolution.h"

#include "tensor/plain/access.h"

namespace whence {

using plain::In, plain::Out;

// y[b,o,i,j] = bias[o] + sum_c sum_t w(o,c,t) x[b,c,i,j+t-left]
void Kernels::convolve_keys(
    const Convolution& at, const Tensor& x, const Tensor& weight, bool adjoint, const Tensor& bias, const Tensor& y) {
  visit_floating("convolve_keys", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const In<T> from(x), w(weight), shift(bias);
    const Out<T> to(y);
    for (index_t row = 0; row < to.rows(); ++row) {
      const index_t b = row / at.rows / at.outputs, o = row / at.rows % at.outputs, i = row % at.rows;
      for (index_t j = 0; j < at.keys_out; ++j) {
        C sum = shift ? shift(o) : C(0);
        for (index_t c = 0; c < at.channels; ++c)
          for (index_t t = 0; t < at.taps; ++t)
            if (const index_t key = j + t - at.left; key >= 0 && key < at.keys)
              sum += w(at.in_kernel(o, c, t, adjoint)) * from[(b * at.channels + c) * at.rows + i][key];
        to[row][j] = sum;
      }
    }
  });
}

// dw(o,c,t) = sum_{b,i,j} dy[b,o,i,j] x[b,c,i,j+t-left]
void Kernels::convolve_keys_weight(const Convolution& at, const Tensor& x, const Tensor& dy, const Tensor& dweight) {
  visit_floating("convolve_keys", x.dtype(), [&]<class T>(Type<T>) {
    using W = plain::wide_t<T>;
    const In<T> from(x), g(dy);
    const Out<T> to(dweight);
    for (index_t n = 0; n < dweight.numel(); ++n) {
      const index_t o = n / at.terms(), c = n / at.taps % at.channels, t = n % at.taps;
      W sum = W(0);
      for (index_t b = 0; b < at.batch; ++b)
        for (index_t i = 0; i < at.rows; ++i)
          for (index_t j = 0; j < at.keys_out; ++j)
            if (const index_t key = j + t - at.left; key >= 0 && key < at.keys)
              sum += W(g[(b * at.outputs + o) * at.rows + i][j] * from[(b * at.channels + c) * at.rows + i][key]);
      to(n) = sum;
    }
  });
}

}  // namespace whence
