// Products of matrices.
#include "tensor/plain/access.h"

namespace whence {

using plain::In, plain::Out;

// out_ij = alpha sum_l a_il b_lj + bias_j, for each matrix of a batch
void Kernels::matmul(const Tensor& a, const Tensor& b, const Tensor* bias, double alpha, const Tensor& out) {
  visit_floating("matmul", out.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const index_t m = out.size(-2), depth = a.size(-1);
    const In<T> left(a), right(b), shift(bias ? *bias : Tensor());
    const Out<T> to(out);
    std::vector<C> sum(static_cast<std::size_t>(out.size(-1)));
    for (index_t row = 0; row < to.rows(); ++row) {
      std::fill(sum.begin(), sum.end(), C(0));
      for (index_t l = 0; l < depth; ++l) {
        const C factor = left[row][l];
        const auto other = right[row / m * depth + l];
        for (index_t j = 0; j < to.width(); ++j) sum[static_cast<std::size_t>(j)] += factor * other[j];
      }
      for (index_t j = 0; j < to.width(); ++j)
        to[row][j] = static_cast<C>(alpha) * sum[static_cast<std::size_t>(j)] + (shift ? shift[0][j] : C(0));
    }
  });
}

// The gradients of a layer's weight and bias, one after the other. a is the transposed dy of the layer: sums has the
// bits of the sum of dy as stored.
void Kernels::matmul_row_sums(const Tensor& a, const Tensor& b, const Tensor& out, const Tensor& sums) {
  matmul(a, b, nullptr, 1, out);
  reduce(Reduction::sum, raw::transpose(a), sums.view({1, a.size(0)}, {a.size(0), 1}));
}

}  // namespace whence
