// Samples of autograd/ops/unary.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"

namespace whence {
namespace {

// Samples of every function: numbers from its range, points with known values, its kinks and points next to them.
Samples samples_of(Unary f) {
  const UnaryFacts& facts = facts_of(f);
  const auto run = [f, p = facts.samples.attributes](const std::vector<Tensor>& in) { return unary(f, in[0], p); };
  const auto sample = [&](const char* name, bool kinked, const std::vector<double>& x) {
    return CheckedSample{name, {Tensor::of(x, {static_cast<index_t>(x.size())}, DType::f64)}, run, kinked};
  };
  std::vector<double> known, around;
  for (const auto& point : facts.known)
    if (std::isfinite(point.x)) known.push_back(point.x);
  for (const auto& kink : facts.samples.kinks)
    if (!std::isnan(kink.x)) around.insert(around.end(), {kink.x - 1, kink.x, kink.x + 1});
  Samples all{{"drawn", {draw::uniform({2, 3, 5}, facts.samples.low, facts.samples.high)}, run},
      sample("with known values", false, known)};
  if (!around.empty()) all.push_back(sample("at its kinks", true, around));
  return all;
}

const bool checked = [] {
  for (const Unary f : Unary::all()) Checked({facts_of(f).name, [f] { return samples_of(f); }}, Accepts::any_call);
  return true;
}();

Samples derivatives() {
  const auto of = [](Unary f) {
    return [f](const std::vector<Tensor>& in) { return unary_backward(f, in[0], in[1]); };
  };
  return {{"sigmoid", {draw::uniform({3, 5}, 0.1, 0.9), draw::normal({3, 5})}, of(functions::Sigmoid{})},
      {"gelu", {draw::normal({2, 7}), draw::normal({2, 7})}, of(functions::Gelu{})},
      {"exp of 0-d", {draw::normal({}), draw::normal({})}, of(functions::Exp{})}};
}
std::vector<BadInput> bad_inputs() {
  return {refusal("unary_backward: saved is [2,3]; [3] required", unary_backward, Unary(functions::Exp{}),
      draw::zeros(2, 3), draw::zeros(3), UnaryAttributes())};
}

const Checked checked_backward({"unary_backward", derivatives, bad_inputs, {}, true});

}  // namespace
}  // namespace whence
