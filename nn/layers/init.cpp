#include "nn/layers/init.h"

#include <cmath>
#include <sstream>

#include "tensor/kernels.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {
namespace {

double require_finite_number(const char* what, double value) {
  if (!std::isfinite(value)) fail("init", what, " ", value, " given; a finite number required");
  return value;
}

double require_deviation(double value) {
  if (!(value >= 0) || !std::isfinite(value))
    fail("init", "deviation ", value, " given; a finite number of 0 or more required");
  return value;
}

// Returns the first draw i of the streams (key, 0), (key, 1), ... that is within two deviations.
double truncated(const Stream& stream, std::uint64_t i) {
  Stream attempt = stream;
  double z = attempt.normal(i);
  while (std::abs(z) > 2) {
    ++attempt.step;
    z = attempt.normal(i);
  }
  return z;
}

}  // namespace

Init Init::constant(double value) { return {Kind::constant, require_finite_number("value", value), 0}; }

Init Init::uniform(double low, double high) {
  require_finite_number("low end", low);
  require_finite_number("high end", high);
  if (low > high) fail("init", "uniform from ", low, " to ", high, " given; low <= high required");
  return {Kind::uniform, low, high};
}

Init Init::normal(double mean, double deviation) {
  return {Kind::normal, require_finite_number("mean", mean), require_deviation(deviation)};
}

Init Init::truncated_normal(double mean, double deviation) {
  return {Kind::truncated_normal, require_finite_number("mean", mean), require_deviation(deviation)};
}

Init Init::fan_in(index_t inputs) {
  if (inputs < 1) fail("init", "fan-in ", inputs, " given; 1 or more required");
  const double bound = 1 / std::sqrt(static_cast<double>(inputs));
  return uniform(-bound, bound);
}

std::string Init::text() const {
  if (kind == Kind::constant) return first == 0 ? "zeros" : first == 1 ? "ones" : to_text("constant(", first, ")");
  const char* const name = kind == Kind::uniform ? "uniform" : kind == Kind::normal ? "normal" : "truncated_normal";
  return to_text(name, "(", first, ", ", second, ")");
}

Tensor Init::draw(const Shape& shape, const Stream& stream, DType dtype) const {
  if (kind == Kind::constant) return Tensor::full(shape, first, dtype);
  Tensor drawn = Tensor::empty(shape, DType::f64);
  if (kind == Kind::uniform) {
    kernels(Device::cpu()).random_uniform(drawn, stream, first, second);
  } else if (kind == Kind::normal) {
    kernels(Device::cpu()).random_normal(drawn, stream, first, second);
  } else {
    double* out = drawn.data<double>();
    for (index_t i = 0; i < drawn.numel(); ++i)
      out[i] = first + second * truncated(stream, static_cast<std::uint64_t>(i));
  }
  return raw::cast(drawn, dtype);
}

Inits inits_of(Initialisation initialisation, index_t dim, index_t hidden, index_t layers) {
  const double width = static_cast<double>(dim), depth = static_cast<double>(layers);
  const Init zeros = Init::zeros(), small = Init::normal(0, 0.02);
  switch (initialisation) {
    case Initialisation::gpt2: {
      const Init out = Init::normal(0, 0.02 / std::sqrt(2 * depth));
      return {small, small, out, out, zeros, small};
    }
    case Initialisation::neox: {
      const Init in = Init::normal(0, std::sqrt(2 / (5 * width))),
                 out = Init::normal(0, 2 / (depth * std::sqrt(width)));
      return {in, in, out, out, zeros, in};
    }
    case Initialisation::llama: return {small, small, small, small, zeros, small};
    case Initialisation::ram: {
      const Init linear = Init::fan_in(dim);
      return {Init::normal(0, 1 / std::sqrt(width)), linear, linear, Init::fan_in(hidden), linear, linear};
    }
    default: {
      const Init linear = Init::truncated_normal(0, 1 / std::sqrt(width));
      return {Init::truncated_normal(0, 0.02), linear, linear, linear, zeros, linear};
    }
  }
}

}  // namespace whence
