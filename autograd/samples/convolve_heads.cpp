// Samples of autograd/ops/convolve_heads.cpp.
#include "autograd/convolve_heads.h"
#include "autograd/ops.h"
#include "autograd/samples/samples.h"

namespace whence {
namespace {

// The gradient of scores of this shape, as a function of dy and the weight.
SampleCall of_scores(index_t reach, const Shape& shape) {
  return adjoint(
      [=](const Tensor& x, const std::vector<Tensor>& in) { return convolve_heads(x, in[1], reach); }, shape);
}

Samples samples() {
  const auto drawn = [](const char* called, const Shape& x, index_t q, index_t k, index_t reach) {
    return CheckedSample{called, {draw::normal(x), draw::normal({x[1], q, k})}, call(convolve_heads, reach)};
  };
  CheckedSample transposed = drawn("transposed", {2, 3, 4, 4}, 2, 3, 0);
  transposed.run = of_scores(0, {2, 3, 4, 4});
  return {drawn("causal", {2, 3, 4, 4}, 2, 3, 0), transposed, drawn("all keys", {1, 2, 3, 5}, 3, 5, 5),
      drawn("later rows", {1, 2, 3, 6}, 2, 3, 3), drawn("wider than the row", {1, 1, 2, 2}, 4, 7, 0),
      drawn("one tap", {1, 2, 3, 3}, 1, 1, 0), drawn("more keys than a tile", {1, 1, 2, 259}, 2, 5, 258),
      drawn("no keys", {1, 2, 3, 0}, 2, 3, 0), drawn("no batch", {0, 2, 3, 4}, 2, 3, 0)};
}
// The first sample, of 4 rows and keys, q = 2 and k = 3, by shifted copies.
Tensor reference(const std::vector<Tensor>& in) {
  const Tensor seen =
                   cumulative_sum(Tensor::of({1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, {4, 4}, DType::f64), 0),
               x = in[0] * seen, row = Tensor::zeros({2, 3, 1, 4}, DType::f64),
               key = Tensor::zeros({2, 3, 5, 1}, DType::f64),
               padded = concat_along(3, {key, concat_along(2, {row, x}), key});
  Tensor y = x * 0.0;
  for (index_t a = 0; a < 2; ++a)
    for (index_t c = 0; c < 3; ++c)
      y = y + slice(slice(padded, 2, a, a + 4), 3, c, c + 4) *
                  reshape(slice(slice(in[1], 1, a, a + 1), 2, c, c + 1), {3, 1, 1});
  return y * seen;
}
std::vector<BadInput> bad_inputs() {
  const Tensor x = draw::zeros(1, 2, 3, 3);
  return {refusal("convolve_heads: x is [2,3]; [b, h, i, j] required", convolve_heads, draw::zeros(2, 3),
              draw::zeros(2, 1, 1), 0),
      refusal("convolve_heads: x is [1,2,3,3], weight is [2,1,2]; weight [2, q, k] with k odd and at most 63 required",
          convolve_heads, x, draw::zeros(2, 1, 2), 0),
      refusal("convolve_heads: reach -1 given; 0 or more required", convolve_heads, x, draw::zeros(2, 1, 1), -1)};
}
// The gradient of the weight as a function of dy and x, and that of the gradient above.
Samples weight_gradients() {
  const Shape shape{2, 2, 3, 4};
  const auto causal = [](const Tensor& weight, const std::vector<Tensor>& in) {
    return convolve_heads(in[1], weight, 0);
  };
  const auto transposed = [=](const Tensor& weight, const std::vector<Tensor>& in) {
    return of_scores(1, shape)({in[1], weight});
  };
  return {{"causal", {draw::normal(shape), draw::normal(shape)}, adjoint(causal, {2, 2, 3})},
      {"transposed", {draw::normal(shape), draw::normal(shape)}, adjoint(transposed, {2, 2, 3})}};
}

const Checked checked[] = {
    {{"convolve_heads", samples, bad_inputs, reference}}, {{"convolve_heads_kernel_gradient", weight_gradients}}};

}  // namespace
}  // namespace whence
