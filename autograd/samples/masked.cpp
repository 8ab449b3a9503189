// Samples of autograd/ops/masked.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"

namespace whence {
namespace {

Samples samples() {
  return {{"mask that broadcasts", {draw::normal({2, 3, 4}), draw::mask({3, 4}, 0.5)}, call(masked, -2.5)},
      {"mask of x's shape", {draw::normal({3, 5}), draw::mask({3, 5}, 0.5)}, call(masked, 0)},
      {"0-d", {draw::normal({}), Tensor::zeros({}, DType::boolean)}, call(masked, 1)},
      {"nothing", {draw::normal({0, 3}), draw::mask({3}, 0.5)}, call(masked, 1)}};
}
std::vector<BadInput> bad_inputs() {
  const Tensor x = draw::zeros(2, 3);
  return {refusal("masked: mask is f32; bool required; convert with cast", masked, x, x, 0)};
}

const Checked checked({"masked", samples, bad_inputs});

}  // namespace
}  // namespace whence
