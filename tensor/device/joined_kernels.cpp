#include "tensor/device/joined_kernels.h"

#include <algorithm>
#include <limits>

#include "tensor/error.h"
#include "tensor/pairs.h"
#include "tensor/raw.h"

namespace whence {

void JoinedKernels::matmul_gelu(
    const Tensor& a, const Tensor& b, const Tensor* bias, const Tensor& before, const Tensor& out) {
  matmul(a, b, bias, 1, before);
  unary(functions::Gelu{}, {}, before, out);
}

Tensor JoinedKernels::matmul_beside(const Tensor&, std::span<const Tensor>, std::span<const Tensor>) { return {}; }

void JoinedKernels::copy_all(std::span<const Tensor> from, std::span<const Tensor> to) {
  for (std::size_t k = 0; k < from.size(); ++k) copy(from[k], to[k]);
}

void JoinedKernels::matmul_gelu_backward(
    const Tensor& a, const Tensor& b, const Tensor& before, const Tensor& out, const Tensor& sums) {
  const Tensor dy = Tensor::like(out);
  matmul(a, b, nullptr, 1, dy);
  unary_backward(functions::Gelu{}, {}, before, dy, out);
  if (sums.defined()) reduce(Reduction::sum, out, sums.view({1, out.size(1)}, {out.size(1), 1}));
}

std::size_t JoinedKernels::most_shared_bytes(DType dtype) const {
  return fits_float(dtype) ? std::numeric_limits<std::size_t>::max() : 0;
}

static void refuse_tiles(const char* op, std::span<const Tensor> x) {
  fail(op, to_string(x[0].device()), " given, which has no tiles; the cpu or a GPU required");
}
void JoinedKernels::attention(
    const TiledCall&, std::span<const Tensor> x, const Tensor&, const Tensor&, const Tensor&) {
  refuse_tiles("tiled_attention", x);
}
void JoinedKernels::attention_backward(const TiledCall& at, std::span<const Tensor> x, const Tensor&, const Tensor&,
    const Tensor&, const Tensor&, const Tensor&, std::span<const Tensor>) {
  attention(at, x, {}, {}, {});
}
void JoinedKernels::mix(const TiledCall&, std::span<const Tensor> x, const Tensor&, const Tensor&) {
  refuse_tiles("tiled_mix", x);
}
void JoinedKernels::mix_backward(const TiledCall& at, std::span<const Tensor> x, const Tensor&, const Tensor&,
    const Tensor&, std::span<const Tensor>) {
  mix(at, x, {}, {});
}

}  // namespace whence
