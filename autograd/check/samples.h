// Samples of an op's inputs, calls that the op must refuse, and the registry of ops. The generic tests of
// tests/autograd/check/battery.cpp walk the registry.
#pragma once

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "tensor/tensor.h"

namespace whence {

// ---- Samples: the author of an op writes them; every generic test follows ----

template <class Op> struct Sample {
  std::string name;
  Op op;                       // with its attributes
  std::vector<Tensor> inputs;  // f64; index inputs i64, masks bool
  bool kinked = false;         // at a point without a derivative: duals must agree with backward, differences need not
};
template <class Op> using Samples = std::vector<Sample<Op>>;

// Numbers for samples, the same on every run: their stream is seeded with the op's name before samples() is called.
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
// Returns the call f(arguments...), f a function of autograd/ops.h, with the message it must give.
template <class F, class... Arguments> BadInput refusal(std::string message, F* f, Arguments... arguments) {
  return {std::move(message), [=] { (void)f(arguments..., Site::current()); }};
}

struct CheckedSample {
  std::string name;
  bool kinked;
  std::vector<Tensor> inputs;
  std::function<Tensor(const std::vector<Tensor>&)> run;
  // Empty, or the ops that this op fuses. On the CPU the bits must be equal: value and gradients, in every dtype.
  std::function<Tensor(const std::vector<Tensor>&)> composed = {};
};
// Samples f(x, arguments...) as a function of x, which is drawn from the normal distribution.
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
  // Empty, or computes sample 0 by other means in f64: by plain loops or by other ops.
  std::function<Tensor(const std::vector<Tensor>&)> reference = {};
  bool on_cpu_alone = false;  // no other device has a kernel for it
};

std::vector<CheckedOp>& checked_ops();

}  // namespace whence
