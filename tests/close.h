// Distances between tensors, texts of errors, and gradients without backward: by dual numbers and by differences.
#pragma once

#include <algorithm>
#include <limits>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "nn/layers/module.h"
#include "tensor/raw.h"
#include "tests/reference.h"

namespace whence::test {

// The largest |a_i - b_i|; infinite where shapes differ or one of the two is not a number.
inline double distance(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined() || !(a.shape() == b.shape())) return std::numeric_limits<double>::infinity();
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i]) continue;  // also equal infinities
    const double apart = std::fabs(x[i] - y[i]);
    largest = std::isnan(apart) ? std::numeric_limits<double>::infinity() : std::max(largest, apart);
  }
  return largest;
}

inline double largest(const Tensor& x) { return distance(x, Tensor::zeros(x.shape(), DType::f64)); }

// The text of the Error that f throws, without the "file.cpp:12: " in front.
inline std::string message(const std::function<void()>& f) {
  const std::string text = error_text(f);
  const auto colon = text.find(".cpp:");
  if (colon == std::string::npos || text.find(' ') < colon) return text;
  return text.substr(text.find(": ", colon) + 2);
}

// "file.cpp:11" for a call on line 12: the place of the statement above.
inline std::string above(Site at = Site::current()) {
  const std::string place = to_string(at);
  return to_text(place.substr(0, place.find(':') + 1), at.line() - 1);
}

inline Tensor leaf(const std::vector<double>& values, const Shape& shape) {
  return requires_grad(Tensor::of(values, shape, DType::f64));
}
inline Tensor normal(const Shape& shape, std::uint64_t seed, DType dtype = DType::f64) {
  return Tensor::normal(shape, 0, 1, Stream(seed, "tests"), dtype);
}
inline Tensor normal_leaf(const Shape& shape, std::uint64_t seed, DType dtype = DType::f64) {
  return requires_grad(normal(shape, seed, dtype));
}

inline double dot(const Tensor& a, const Tensor& b) { return sum(a.detach() * b.detach()).item(); }

// value + tangent e
inline Tensor dual_of(const Tensor& value, const Tensor& tangent) {
  const Tensor result = Tensor::empty(value.shape(), DType::dual);
  const std::vector<double> values = value.to_vector(), tangents = tangent.to_vector();
  for (std::size_t i = 0; i < values.size(); ++i) result.data<Dual>()[i] = Dual(values[i], tangents[i]);
  return result;
}

using Function = std::function<Tensor(const std::vector<Tensor>&)>;  // to a scalar

// For every input of f: <gradient, u> by backward against the derivative along a random u by duals, and by central
// differences. Returns the worst differences, relative to max(1, |expected|).
struct Disagreement {
  double duals = 0, differences = 0;
};

inline Disagreement check_gradient(const Function& f, const std::vector<Tensor>& at) {
  std::vector<Tensor> leaves;
  for (const Tensor& x : at) leaves.push_back(requires_grad(raw::copy(x.detach())));
  const std::vector<Tensor> gradients = grad(f(leaves), {}, leaves, {.allow_unused = true});
  const NoGrad values_only;
  Disagreement worst;
  for (std::size_t k = 0; k < at.size(); ++k) {
    const Tensor u = normal(at[k].shape(), 1000 + k);
    const double found = gradients[k].defined() ? dot(gradients[k], u) : 0;
    std::vector<Tensor> duals, plus = at, minus = at;
    for (std::size_t other = 0; other < at.size(); ++other)
      duals.push_back(dual_of(at[other], other == k ? u : Tensor::zeros(at[other].shape(), DType::f64)));
    const double exact = f(duals).data<Dual>()->tangent, step = 1e-5;
    plus[k] = at[k].detach() + u * step, minus[k] = at[k].detach() - u * step;
    const double estimate = (f(plus).item() - f(minus).item()) / (2 * step);
    worst.duals = std::max(worst.duals, std::fabs(found - exact) / std::max(1.0, std::fabs(exact)));
    worst.differences = std::max(worst.differences, std::fabs(found - estimate) / std::max(1.0, std::fabs(estimate)));
  }
  return worst;
}

// Random numbers in every parameter, so that none is zero by its initialisation. They depend on the path alone.
inline void randomise(Module& module, DType dtype = DType::f64, double deviation = 0.4) {
  module.to(dtype);
  for (const Module::Parameter& parameter : module.parameters()) {
    const Tensor drawn = Tensor::normal(parameter.tensor.shape(), 0, deviation, Stream(5, parameter.path), DType::f64);
    raw::copy_into(raw::cast(drawn, dtype), parameter.tensor);
    parameter.put_inside_bounds();
  }
}

inline Tensor parameter(const Module& module, const std::string& path) {
  for (const Module::Parameter& each : module.parameters())
    if (each.path == path) return each.tensor;
  fail("parameter", to_text("'", path, "' given; no such path"));
}

}  // namespace whence::test
