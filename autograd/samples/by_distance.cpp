// Samples of autograd/ops/by_distance.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"
#include "tensor/pairs.h"
#include "tensor/raw.h"

namespace whence {
namespace {

Steps steps_of(const std::vector<double>& query, const std::vector<double>& key, index_t batch, bool behind_only) {
  const auto row = [batch](const std::vector<double>& x) {
    return Tensor::of(x, {batch, static_cast<index_t>(x.size()) / batch}, DType::i64);
  };
  return Steps::of(row(query), row(key), behind_only);
}
Steps causal() { return steps_of({2, 3, 4}, {0, 1, 2, 3, 4}, 1, true); }
Steps uneven() { return steps_of({0, 2, 3, 0, 1, 1}, {0, 2, 3, 0, 1, 1}, 2, true); }

Samples samples() {
  return {{"causal, behind other tokens", {draw::normal({2, 5})}, call(by_distance, causal())},
      {"keys on both sides", {draw::normal({3, 6})}, call(by_distance, steps_of({0, 1, 2, 3}, {0, 1, 2}, 1, false))},
      {"two sequences, uneven", {draw::normal({2, 4})}, call(by_distance, uneven())},
      {"one pair, one head", {draw::normal({1, 1})}, call(by_distance, steps_of({7}, {7}, 1, true))},
      {"strided", {raw::transpose(draw::normal({5, 2}))}, call(by_distance, causal())},
      {"no heads", {draw::normal({0, 5})}, call(by_distance, causal())}};
}
std::vector<BadInput> bad_inputs() {
  return {refusal("by_distance: table is [2,4]; [h,5] required, a number for each distance", by_distance,
      draw::zeros(2, 4), causal())};
}

Samples sums() {
  const auto sums_of = [](const Steps& steps, const Shape& table) {
    return adjoint([=](const Tensor& x, const std::vector<Tensor>&) { return by_distance(x, steps); }, table);
  };
  return {{"causal, behind other tokens", {draw::normal({1, 2, 3, 5})}, sums_of(causal(), {2, 5})},
      {"two sequences, uneven", {draw::normal({2, 2, 3, 3})}, sums_of(uneven(), {2, 4})}};
}

const Checked checked[] = {{{"by_distance", samples, bad_inputs}}, {{"sum_by_distance", sums}}};

}  // namespace
}  // namespace whence
