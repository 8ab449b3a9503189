// Samples of autograd/ops/lerp_at.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"

namespace whence {
namespace {

Samples samples() {
  return {{"interior", {draw::normal({2, 3, 6}), draw::uniform({2, 3, 5}, 0, 5)}, call(lerp_at)},
      {"integer positions", {draw::normal({1, 6}), draw::integers({1, 9}, 0, 5)}, call(lerp_at), true},
      {"one-row table", {draw::normal({4, 1}), Tensor::zeros({4, 7}, DType::f64)}, call(lerp_at), true},
      {"long rows", {draw::normal({2, 9}), draw::uniform({2, 301}, 0, 8)}, call(lerp_at)},
      {"outside the table", {draw::normal({3, 4}), draw::uniform({3, 6}, 3.5, 7)}, call(lerp_at)},
      {"no positions", {draw::normal({2, 4}), draw::normal({2, 0})}, call(lerp_at)}};
}
std::vector<BadInput> bad_inputs() {
  return {
      refusal("lerp_at: table is [2,4], position is [3,5]; [... n] with n > 0 and [... m] with the same leading axes "
              "required; expand one of them",
          lerp_at, draw::zeros(2, 4), draw::zeros(3, 5)),
      refusal("lerp_at: table is f64, position is f32; equal dtypes required; convert with cast", lerp_at,
          Tensor::zeros({2, 4}, DType::f64), draw::zeros(2, 5))};
}

// Computes the first sample.
Tensor reference(const std::vector<Tensor>& in) {
  const std::vector<double> t = in[0].to_vector(), p = in[1].to_vector();
  std::vector<double> y;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double* const row = t.data() + i / 5 * 6;
    const auto below = static_cast<std::size_t>(p[i]);
    const double share = p[i] - static_cast<double>(below);
    y.push_back((1 - share) * row[below] + share * row[below + (share > 0 ? 1 : 0)]);
  }
  return Tensor::of(y, in[1].shape(), DType::f64);
}

const Checked checked({"lerp_at", samples, bad_inputs, reference}, Accepts::any_call);

}  // namespace
}  // namespace whence
