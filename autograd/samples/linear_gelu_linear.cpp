// Samples of autograd/ops/linear_gelu_linear.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"

namespace whence {
namespace {

Tensor composed(const std::vector<Tensor>& in) { return linear(gelu(linear(in[0], in[1], in[2])), in[3], in[4]); }

Samples samples() {
  const Shape in{8, 4}, out{3, 8};
  const auto sample = [&](const char* called, const Tensor& x, bool with_in, bool with_out) {
    const Tensor bias_in = with_in ? draw::normal({8}) : Tensor(), bias_out = with_out ? draw::normal({3}) : Tensor();
    return CheckedSample{
        called, {x, draw::normal(in), bias_in, draw::normal(out), bias_out}, call(linear_gelu_linear), false, composed};
  };
  return {sample("rows", draw::normal({3, 4}), true, true), sample("leading axes", draw::normal({2, 3, 4}), true, true),
      sample("no biases", draw::normal({3, 4}), false, false),
      sample("a bias within", draw::normal({3, 4}), true, false),
      sample("a bias behind", draw::normal({3, 4}), false, true),
      sample("one row without an axis", draw::normal({4}), true, true),
      sample("no rows", draw::normal({0, 4}), true, true)};
}
std::vector<BadInput> bad_inputs() {
  return {refusal("linear_gelu_linear: x is [2,3], weight_in is [4,3], weight_out is [3,5]; x [... in], weight_in "
                  "[hidden,in] and weight_out [out,hidden] required",
              linear_gelu_linear, draw::zeros(2, 3), draw::zeros(4, 3), Tensor(), draw::zeros(3, 5), Tensor()),
      refusal("linear_gelu_linear: bias_out is [4]; [3] required", linear_gelu_linear, draw::zeros(2, 3),
          draw::zeros(4, 3), draw::zeros(4), draw::zeros(3, 4), draw::zeros(4))};
}

const Checked checked({"linear_gelu_linear", samples, bad_inputs}, Accepts::any_call);

}  // namespace
}  // namespace whence
