// What an op gives the generic tests: samples of its inputs, calls that it must refuse, and a place in the registry of
// ops, which tests/autograd/check/battery.cpp walks.
#pragma once

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "tensor/tensor.h"

namespace whence {

// ---- Samples: what an op's author writes; every generic test follows ----

template <class Op> struct Sample {
  std::string name;
  Op op;                       // with its attributes
  std::vector<Tensor> inputs;  // f64; index inputs i64, masks bool
  bool kinked = false;  // sits on a point without a derivative: duals must agree with backward, differences need not
};
template <class Op> using Samples = std::vector<Sample<Op>>;

// Numbers for samples, the same on every run. Their stream is seeded with the op's name before samples() is called.
namespace draw {
void seed(const std::string& name);
Tensor normal(const Shape& shape);
// For inputs that are refused: their numbers do not matter.
template <class... Extent> Tensor zeros(Extent... extents) { return Tensor::zeros({index_t{extents}...}); }
Tensor uniform(const Shape& shape, double low, double high);
Tensor integers(const Shape& shape, int low, int high);  // f64 whole numbers in [low, high]
Tensor index(const Shape& shape, int count);             // i64 in [0, count)
Tensor mask(const Shape& shape, double share_of_true);
}  // namespace draw

struct BadInput {
  std::string message;  // the whole expected text after "place: "
  std::function<void()> call;
};
// Of f(arguments...), a function of autograd/ops.h.
template <class F, class... Arguments> BadInput refusal(std::string message, F* f, Arguments... arguments) {
  return {std::move(message), [=] { (void)f(arguments..., Site::current()); }};
}

struct CheckedSample {
  std::string name;
  bool kinked;
  std::vector<Tensor> inputs;
  std::function<Tensor(const std::vector<Tensor>&)> run;
  // Empty, or what the op joins, of which it has the very bits on the CPU: value and gradients, in every dtype.
  std::function<Tensor(const std::vector<Tensor>&)> composed = {};
};
// f(x, arguments...) by x, which is drawn from the normal distribution.
template <class... Arguments> struct Drawn {
  std::string name;
  Shape x;
  std::tuple<Arguments...> arguments = {};
};
template <class... Arguments, class F>
std::function<std::vector<CheckedSample>()> drawn(F* f, std::vector<Drawn<Arguments...>> all) {
  return [=] {
    std::vector<CheckedSample> samples;
    for (const auto& [name, x, arguments] : all) {
      const auto run = [f, with = arguments](const std::vector<Tensor>& in) {
        return std::apply([&](const Arguments&... each) { return f(in[0], each..., Site::current()); }, with);
      };
      samples.push_back({name, false, {draw::normal(x)}, run});
    }
    return samples;
  };
}

struct CheckedOp {
  std::string name;
  bool once;
  std::function<std::vector<CheckedSample>()> samples;
  std::function<std::vector<BadInput>()> bad_inputs = {};
  // Empty, or sample 0 computed by other means in f64: from plain loops, or from other ops.
  std::function<Tensor(const std::vector<Tensor>&)> reference = {};
  bool on_cpu_alone = false;  // no other device has its kernel
};

std::vector<CheckedOp>& checked_ops();

}  // namespace whence
