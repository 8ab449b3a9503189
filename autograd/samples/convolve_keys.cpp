// Samples of autograd/ops/convolve_keys.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"

namespace whence {
namespace {

Samples samples() {
  const auto drawn = [](const char* name, const Shape& x, index_t outputs, index_t k, index_t before, index_t after) {
    return CheckedSample{name, {draw::normal(x), draw::normal({outputs, x[1], 1, k}), draw::normal({outputs})},
        call(convolve_keys, before, after)};
  };
  Samples all = {drawn("width 3", {2, 3, 4, 7}, 5, 3, 1, 1),
      drawn("a linear layer over the heads", {2, 6, 3, 5}, 4, 1, 0, 0),
      drawn("width 5, odd extents", {1, 3, 3, 9}, 1, 5, 2, 2), drawn("keys before only", {2, 2, 3, 6}, 3, 3, 2, 0),
      drawn("padding that widens", {1, 2, 2, 4}, 2, 2, 3, 4), drawn("cropped", {1, 2, 2, 6}, 2, 3, -1, 0),
      drawn("keys after only", {1, 1, 2, 5}, 2, 4, 0, 3), drawn("wider than the row", {1, 2, 2, 2}, 3, 7, 3, 3),
      drawn("more keys than a tile", {1, 2, 1, 515}, 2, 3, 1, 1), drawn("one row, one key", {1, 3, 1, 1}, 2, 1, 0, 0),
      drawn("no keys", {1, 2, 3, 0}, 2, 3, 1, 1), drawn("no batch", {0, 2, 3, 4}, 2, 3, 1, 1)};
  all.push_back(
      {"without bias", {draw::normal({1, 2, 3, 4}), draw::normal({2, 2, 1, 3}), Tensor()}, call(convolve_keys, 1, 1)});
  return all;
}
std::vector<BadInput> bad_inputs() {
  const Tensor x = draw::zeros(1, 2, 3, 2);
  return {refusal("convolve_keys: x is [2,3]; [b, c, i, j] required", convolve_keys, draw::zeros(2, 3),
              draw::zeros(1, 3, 1, 1), Tensor(), 0, 0),
      refusal("convolve_keys: x is [1,2,3,2], weight is [5,3,1,1]; weight [o, 2, 1, k] with o, k > 0 required",
          convolve_keys, x, draw::zeros(5, 3, 1, 1), Tensor(), 0, 0),
      refusal(
          "convolve_keys: bias is [4]; [5] required", convolve_keys, x, draw::zeros(5, 2, 1, 1), draw::zeros(4), 0, 0),
      refusal(
          "convolve_keys: x has 2 keys, left 0, right 0, weight spans 5; keys + left + right >= 4 required; pad more",
          convolve_keys, x, draw::zeros(1, 2, 1, 5), Tensor(), 0, 0)};
}

// The gradients of x, as a function of dy and the weight, and of the weight, as one of dy and x.
Samples adjoints() {
  const auto of_x = [](const Shape& x, index_t left, index_t right) {
    return adjoint(
        [=](const Tensor& at, const std::vector<Tensor>& in) { return convolve_keys(at, in[1], {}, left, right); }, x);
  };
  return {{"width 3", {draw::normal({2, 3, 2, 5}), draw::normal({3, 2, 1, 3})}, of_x({2, 2, 2, 5}, 1, 1)},
      {"left, cropped on the right", {draw::normal({1, 2, 3, 4}), draw::normal({2, 5, 1, 2})},
          of_x({1, 5, 3, 3}, 3, -1)}};
}
Samples weight_gradients() {
  const auto of_weight = [](const Shape& weight, index_t left, index_t right) {
    return adjoint(
        [=](const Tensor& at, const std::vector<Tensor>& in) { return convolve_keys(in[1], at, {}, left, right); },
        weight);
  };
  return {{"width 3", {draw::normal({2, 3, 2, 5}), draw::normal({2, 2, 2, 5})}, of_weight({3, 2, 1, 3}, 1, 1)},
      {"left, cropped on the right", {draw::normal({1, 2, 3, 4}), draw::normal({1, 5, 3, 3})},
          of_weight({2, 5, 1, 2}, 3, -1)}};
}

const Checked checked[] = {{{"convolve_keys", samples, bad_inputs}, Accepts::any_shapes},
    {{"convolve_keys_adjoint", adjoints}}, {{"convolve_keys_kernel_gradient", weight_gradients}}};

}  // namespace
}  // namespace whence
