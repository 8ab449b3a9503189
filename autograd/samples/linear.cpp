// Samples of autograd/ops/linear.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"

namespace whence {
namespace {

Samples samples() {
  return {{"rows", {draw::normal({3, 4}), draw::normal({5, 4}), draw::normal({5})}, call(linear)},
      {"leading axes", {draw::normal({2, 3, 4}), draw::normal({2, 4}), draw::normal({2})}, call(linear)},
      {"no bias", {draw::normal({3, 4}), draw::normal({1, 4}), Tensor()}, call(linear)},
      {"one row without an axis", {draw::normal({4}), draw::normal({3, 4}), draw::normal({3})}, call(linear)},
      {"no rows", {draw::normal({0, 4}), draw::normal({3, 4}), draw::normal({3})}, call(linear)}};
}
std::vector<BadInput> bad_inputs() {
  const Tensor x = draw::zeros(2, 3), weight = draw::zeros(4, 3);
  return {refusal("linear: x is [2,3], weight is [3,4]; x [... in] and weight [out,in] required", linear, x,
              draw::zeros(3, 4), Tensor()),
      refusal("linear: bias is [3]; [4] required", linear, x, weight, draw::zeros(3)),
      refusal("linear: x is f32, weight is f64; equal dtypes required; convert with cast", linear, x,
          Tensor::zeros({4, 3}, DType::f64), Tensor())};
}
Tensor reference(const std::vector<Tensor>& in) { return matmul(in[0], transpose(in[1])) + in[2]; }

const Checked checked({"linear", samples, bad_inputs, reference}, Accepts::any_call);

}  // namespace
}  // namespace whence
