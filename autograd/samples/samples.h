// Samples of an op's inputs, calls that the op must refuse, and the registry of ops, which gradcheck, `whence verify` and
// the generic tests (tests/autograd/check/battery.cpp) walk. autograd/samples/ has those of the library's ops:
//
//   const Checked checked({"square", [] { return std::vector<CheckedSample>{{"rows", {draw::normal({2, 3})}, call(square)}}; }});
#pragma once

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "tensor/tensor.h"

namespace whence {

// Numbers for samples, the same on every run: their stream is that of the op's name.
namespace draw {
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

using SampleCall = std::function<Tensor(const std::vector<Tensor>&)>;

struct CheckedSample {
  std::string name;
  std::vector<Tensor> inputs;  // f64; index inputs i64, masks bool
  SampleCall run;
  bool kinked = false;  // at a point without a derivative: duals must agree with backward, differences need not
  // Empty, or the ops that this op fuses. On the CPU the bits must be equal: value and gradients, in every dtype.
  SampleCall composed = {};
};
using Samples = std::vector<CheckedSample>;

// Returns f(inputs..., arguments...), f a function of autograd/ops.h.
template <class... Given, class... Arguments> SampleCall call(Tensor (*f)(Given...), Arguments... arguments) {
  return [=](const std::vector<Tensor>& in) {
    return [&]<std::size_t... K>(std::index_sequence<K...>) { return f(in[K]..., arguments..., Site::current()); }(
               std::make_index_sequence<sizeof...(Given) - sizeof...(Arguments) - 1>());
  };
}
// Returns the gradient at an x of this shape of f(x, inputs), linear in x, as a function of the inputs; the first is dy.
SampleCall adjoint(std::function<Tensor(const Tensor& x, const std::vector<Tensor>& in)> f, const Shape& x);

// Samples f(x, arguments...) as a function of x, which is drawn from the normal distribution.
template <class... Arguments> struct Drawn {
  std::string name;
  Shape x;
  std::tuple<Arguments...> arguments = {};
};
template <class... Arguments, class F> std::function<Samples()> drawn(F* f, std::vector<Drawn<Arguments...>> all) {
  return [=] {
    Samples samples;
    for (const auto& [name, x, arguments] : all) {
      const auto run = [f, with = arguments](const std::vector<Tensor>& in) {
        return std::apply([&](const Arguments&... each) { return f(in[0], each..., Site::current()); }, with);
      };
      samples.push_back({name, {draw::normal(x)}, run});
    }
    return samples;
  };
}

// Inputs that `import whence` may give an op: in the form of a named sample; of any shapes, which the op's own forward
// checks; these without a sample's name too, because all samples are of one function.
enum class Accepts : unsigned char { a_sample, any_shapes, any_call };

struct CheckedOp {
  std::string name;
  std::function<Samples()> samples;
  std::function<std::vector<BadInput>()> bad_inputs = {};
  // Empty, or computes sample 0 by other means in f64: by plain loops or by other ops.
  SampleCall reference = {};
  bool once = false;          // differentiable once
  bool on_cpu_alone = false;  // no other device has a kernel for it
  Accepts accepts = Accepts::a_sample;
};

inline std::vector<CheckedOp>& checked_ops() {
  static std::vector<CheckedOp> ops;
  return ops;
}

// Registers an op with all of these.
struct Checked {
  Checked(CheckedOp op, Accepts accepts = Accepts::a_sample);
};

}  // namespace whence
