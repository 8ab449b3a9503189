// Samples of autograd/joined/causal_softmax.cpp.
#include "autograd/check/samples.h"
#include "autograd/joined/joined_ops.h"
#include "tensor/pairs.h"
#include "tensor/raw.h"

namespace whence {
namespace {

Steps run(index_t length) {
  const Tensor positions = raw::unsqueeze(Tensor::arange(length), 0);
  return Steps::of(positions, positions, true);
}
Samples samples() {
  const Tensor keys = raw::unsqueeze(Tensor::arange(5), 0), uneven = Tensor::of({0, 2, 3}, {1, 3}, DType::i64);
  const auto by = [](const Steps& steps, index_t first_row) {
    return call(causal_softmax_by_distance, steps, first_row);
  };
  return {{"a run", {draw::normal({2, 2, 5, 5}), draw::normal({2, 5})}, by(run(5), 0)},
      {"behind other tokens", {draw::normal({1, 3, 2, 5}), draw::normal({3, 5})},
          by(Steps::of(raw::slice(keys, 1, 3, 5), keys, true), 3)},
      {"uneven steps", {draw::normal({2, 1, 3, 3}), draw::normal({1, 4})}, by(Steps::of(uneven, uneven, true), 0)},
      {"one token", {draw::normal({1, 1, 1, 1}), draw::normal({1, 1})}, by(run(1), 0)},
      {"no bias", {draw::normal({2, 2, 4, 4})}, call(causal_softmax, 0)},
      {"no bias, behind other tokens", {draw::normal({2, 3, 6})}, call(causal_softmax, 3)},
      {"no bias, rows that see all", {draw::normal({3, 5})}, call(causal_softmax, 4)}};
}
std::vector<BadInput> bad_inputs() {
  return {refusal("causal_softmax_by_distance: table is [1,3]; [2,3] required", causal_softmax_by_distance,
              draw::zeros(1, 2, 3, 3), draw::zeros(1, 3), run(3), 0),
      refusal("causal_softmax_by_distance: x is [1,1,2,3]; steps of 1 sequences of 3 queries and 3 keys given; as many "
              "of each required",
          causal_softmax_by_distance, draw::zeros(1, 1, 2, 3), draw::zeros(1, 3), run(3), 0),
      refusal("causal_softmax: x is [3]; [..., i, j] required", causal_softmax, draw::zeros(3), 0),
      refusal("causal_softmax: first_row is -1; 0 or more required", causal_softmax, draw::zeros(3, 3), -1)};
}
Tensor reference(const std::vector<Tensor>& in) {
  return softmax(in[0] + by_distance(in[1], run(5)), raw::band_mask(5, 5, {}, {}, Device::cpu()));
}

const Checked checked({"causal_softmax", samples, bad_inputs, reference});

}  // namespace
}  // namespace whence
