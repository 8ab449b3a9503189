// Samples of autograd/ops/cross_entropy.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"

namespace whence {
namespace {

Samples samples() {
  const Tensor some = Tensor::of({-100, 16, 0}, {3}, DType::i32);
  return {{"rows", {draw::normal({4, 11}), draw::index({4}, 11)}, call(cross_entropy, -1)},
      {"leading axes", {draw::normal({2, 3, 5}), draw::index({2, 3}, 5)}, call(cross_entropy, -1)},
      {"some ignored", {draw::normal({3, 17}), some}, call(cross_entropy, -100)},
      {"all ignored", {draw::normal({2, 3}), Tensor::full({2}, -1, DType::i64)}, call(cross_entropy, -1)},
      {"one row without an axis", {draw::normal({5}), draw::index({}, 5)}, call(cross_entropy, -1)},
      {"no rows", {draw::normal({0, 3}), draw::index({0}, 3)}, call(cross_entropy, -1)},
      {"the sum", {draw::normal({2, 3, 5}), draw::index({2, 3}, 5)}, call(cross_entropy_sum, -1)},
      {"the sum, some ignored", {draw::normal({3, 17}), some}, call(cross_entropy_sum, -100)}};
}
std::vector<BadInput> bad_inputs() {
  return {refusal("cross_entropy: target at [1] is 3; a value in [0, 3) required, or -1 to ignore it", cross_entropy,
              draw::zeros(2, 3), Tensor::of({0, 3}, {2}, DType::i64), -1),
      refusal("cross_entropy: logits are [2,3], target is [1]; [... v] and [...] required, nothing broadcasts",
          cross_entropy, draw::zeros(2, 3), Tensor::of({0}, {1}, DType::i64), -1)};
}

const Checked checked({"cross_entropy", samples, bad_inputs});

}  // namespace
}  // namespace whence
