// Init: how a parameter's numbers are drawn before training, as a value that can be printed and drawn again.
#pragma once

#include <string>

#include "tensor/tensor.h"

namespace whence {

struct Stream;

struct Init {
  enum class Kind { constant, uniform, normal, truncated_normal };

  // Throw Error for numbers that are not finite, low > high, a deviation below 0, inputs below 1.
  static Init zeros() { return constant(0); }
  static Init ones() { return constant(1); }
  static Init constant(double value);
  static Init uniform(double low, double high);  // on [low, high)
  static Init normal(double mean, double deviation);
  static Init truncated_normal(double mean, double deviation);  // redrawn beyond two deviations from the mean
  static Init fan_in(index_t inputs);  // uniform(-1/sqrt(inputs), 1/sqrt(inputs)), as in PyTorch's Linear

  bool random() const { return kind != Kind::constant; }
  std::string text() const;  // "normal(0, 0.02)"

  // Number i is a pure function of (stream, i), drawn in f64 and rounded to `dtype`, which is floating.
  [[nodiscard]] Tensor draw(const Shape& shape, const Stream& stream, DType dtype = DType::f32) const;

  Kind kind = Kind::constant;
  double first = 0;   // the value, the low end, the mean
  double second = 0;  // unused, the high end, the deviation
};

}  // namespace whence
