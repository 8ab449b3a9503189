// Samples of autograd/ops/softmax.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"

namespace whence {
namespace {

Samples samples() {
  return {{"no mask", {draw::normal({2, 3, 5}), Tensor()}, call(softmax)},
      {"mask that broadcasts", {draw::normal({2, 4, 6}), draw::mask({4, 6}, 0.6)}, call(softmax)},
      {"a row that is masked altogether",
          {draw::normal({2, 3}), Tensor::of({1, 0, 1, 0, 0, 0}, {2, 3}, DType::boolean)}, call(softmax)},
      {"one entry", {draw::normal({3, 1}), Tensor()}, call(softmax)},
      {"no rows", {draw::normal({0, 4}), Tensor()}, call(softmax)},
      {"far apart", {draw::uniform({2, 7}, -30, 30), Tensor()}, call(softmax)}};
}
std::vector<BadInput> bad_inputs() {
  const Tensor x = draw::zeros(3, 3);
  return {refusal("softmax: mask is f32; bool required; convert with cast", softmax, x, x),
      refusal("softmax: x is []; one axis or more is required; use unsqueeze", softmax, draw::zeros(), Tensor())};
}

const Checked checked({"softmax", samples, bad_inputs});

}  // namespace
}  // namespace whence
