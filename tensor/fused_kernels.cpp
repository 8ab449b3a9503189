// Fused kernels as their parts, one after another. A GPU has better ones (cuda/kernels/matmul.cu, copy.cu).
#include "tensor/kernels.h"
#include "tensor/tensor.h"

namespace whence {

void Kernels::matmul_gelu(
    const Tensor& a, const Tensor& b, const Tensor* bias, const Tensor& before, const Tensor& out) {
  matmul(a, b, bias, 1, before);
  unary(functions::Gelu{}, {}, before, out);
}

Tensor Kernels::matmul_beside(const Tensor&, std::span<const Tensor>, std::span<const Tensor>) { return {}; }

void Kernels::copy_all(std::span<const Tensor> from, std::span<const Tensor> to) {
  for (std::size_t k = 0; k < from.size(); ++k) copy(from[k], to[k]);
}

void Kernels::matmul_gelu_backward(
    const Tensor& a, const Tensor& b, const Tensor& before, const Tensor& out, const Tensor& sums) {
  const Tensor dy = Tensor::like(out);
  matmul(a, b, nullptr, 1, dy);
  unary_backward(functions::Gelu{}, {}, before, dy, out);
  if (sums.defined()) reduce(Reduction::sum, out, sums.view({1, out.size(1)}, {out.size(1), 1}));
}

}  // namespace whence
