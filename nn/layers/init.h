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

// The papers' initialisations of a transformer's parameters.
enum class Initialisation : unsigned char {
  gpt2,   // N(0, 0.02^2); layers that write to the residual stream: divided by sqrt(2 layers)
  neox,   // N(0, 2/(5 dim)); writers to the residual stream: deviation 2/(layers sqrt(dim)) (Black et al. 2022)
  llama,  // N(0, 0.02^2)
  ram,    // embedding N(0, 1/dim), the rest as in PyTorch's Linear
  // truncated normal, 0.02 for the embedding and 1/sqrt(dim) for the rest, as the authors of randomised positions do
  che
};

// in: layers that read the residual stream. attention_out, mlp_out: layers that write to it.
struct Inits {
  Init embedding, in, attention_out, mlp_out, bias, head;
};
Inits inits_of(Initialisation initialisation, index_t dim, index_t hidden, index_t layers);

}  // namespace whence
