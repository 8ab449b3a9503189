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

void JoinedKernels::causal_softmax_by_distance(
    const Tensor& x, const Steps& steps, const Tensor& table, index_t first_row, const Tensor& y) {
  const Tensor bias = raw::read_by_distance(steps, table);
  const Tensor logits = Tensor::like(x);
  binary(functions::Add{}, x, raw::expand(bias, x.shape()), logits);
  causal_softmax(logits, first_row, y);
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

void JoinedKernels::causal_softmax(const Tensor& x, index_t first_row, const Tensor& y) {
  const Shape pairs{x.size(-2), x.size(-1)};
  const Tensor seen = raw::band_mask(pairs[0], pairs[1], {first_row}, {}, x.device());
  softmax(x, raw::expand(raw::reshape(seen, pairs), x.shape()), y);
}
void JoinedKernels::causal_softmax_backward(const Tensor& y, const Tensor& dy, index_t, const Tensor& dx) {
  softmax_backward(y, dy, dx);  // y is 0 at hidden entries
}

}  // namespace whence
