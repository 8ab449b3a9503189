// The layers of a transformer; and the data of a forward pass, which dropout draws from.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "autograd/ops.h"
#include "nn/layers/module.h"

namespace whence {

// A table with one row for every index.
class Embedding final : public Module {
 public:
  // weight [rows, dim], each at least 1, else Error
  Embedding(index_t rows, index_t dim, Init init = Init::normal(0, 0.02));

  // index [...] i64 or i32 in [0, rows), else Error (on a GPU when numbers are next read) -> [..., dim]
  [[nodiscard]] Tensor operator()(const Tensor& index, Site site = Site::current()) const;

  const Tensor& weight() const { return weight_; }

 private:
  Tensor weight_;
};

// y = x W' + b
class Linear final : public Module {
 public:
  // weight [outputs, inputs], bias [outputs], without weight decay. Error unless both are 1 or more.
  Linear(index_t inputs, index_t outputs, bool bias = true, Init init = Init::normal(0, 0.02),
      Init bias_init = Init::zeros());
  // Weight and bias start uniform on (-1/sqrt(inputs), 1/sqrt(inputs)).
  static Linear as_pytorch(index_t inputs, index_t outputs) {
    return Linear(inputs, outputs, true, Init::fan_in(inputs), Init::fan_in(inputs));
  }

  // x [..., inputs] in the weight's dtype, else Error -> [..., outputs]
  [[nodiscard]] Tensor operator()(const Tensor& x, Site site = Site::current()) const;

  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }  // undefined if there is none

 private:
  Tensor weight_, bias_;
};

// Normalisation over the last axis.
//   layer norm (Ba et al. 2016):          (x - mean) / sqrt(variance + epsilon) * weight + bias
//   RMS norm (Zhang and Sennrich 2019):   x / sqrt(mean(x^2) + epsilon) * weight
enum class NormKind : unsigned char { layer, rms };

// The residual stream between two layers. The norm that reads it adds its parts, because a GPU does both at once.
struct Residual {
  Tensor x;
  Tensor added = {};  // undefined: 0

  [[nodiscard]] Tensor sum(Site site = Site::current()) const { return added.defined() ? add(x, added, site) : x; }
};

class Norm final : public Module {
 public:
  // weight [dim] ones, and for layer norm bias [dim] zeros at first; neither decays. Error unless dim, epsilon > 0.
  explicit Norm(index_t dim, NormKind kind = NormKind::layer, double epsilon = 1e-5);

  // x [..., dim] in the weight's dtype, else Error -> [..., dim]
  [[nodiscard]] Tensor operator()(const Tensor& x, Site site = Site::current()) const;

  // {x + added, its norm}: one kernel in each direction on a GPU
  [[nodiscard]] SumAndNorm of_sum(const Residual& stream, Site site = Site::current()) const;

  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }  // undefined in RMS norm
  double epsilon() const { return epsilon_; }

 private:
  Tensor weight_, bias_;
  NormKind kind_;
  double epsilon_;
};

// One forward pass of a model.
struct Pass {
  bool training = false;
  std::uint64_t seed = 0;  // seed of the run
  std::uint64_t step = 0;  // unique among the training passes of the run
};

// Dropout (Srivastava et al. 2014). A resumed run draws the same.
class Dropout final : public Module {
 public:
  explicit Dropout(double probability);  // in [0, 1), else InputError

  [[nodiscard]] bool drops(const Pass& pass) const { return pass.training && probability_ > 0; }
  // In training each number is 0 with the module's probability, else divided by 1 - probability. Otherwise returns x
  // itself. The draw depends only on the pass and the module's path.
  [[nodiscard]] Tensor operator()(const Tensor& x, const Pass& pass, Site site = Site::current()) const;

 private:
  double probability_;
};

// gelu is GPT-2's tanh form (Hendrycks and Gimpel 2016); swiglu is the gated form.
enum class Activation : unsigned char { gelu, gelu_erf, relu, swiglu };

// Throws InputError that lists the names if `name` is unknown.
Activation activation_of(const std::string& name);
const char* to_string(Activation activation);

struct MLPOptions {
  index_t dim = 0;     // channels of x and y
  index_t hidden = 0;  // usually 4 dim
  Activation activation = Activation::gelu;
  Init in = Init::normal(0, 0.02);
  Init out = Init::normal(0, 0.02);  // GPT-2 divides it by sqrt(2 layers)
  Init bias_init = Init::zeros();
  bool bias = true;
  double dropout = 0;  // on the hidden numbers, in training; in [0, 1), else InputError
};

// The feed-forward half of a transformer block.
//   y = f(x W1' + b1) W2' + b2,   or gated (Shazeer 2020):   y = (silu(x G') * x W1') W2'
class MLP final : public Module {
 public:
  explicit MLP(const MLPOptions& options);

  // x [..., dim] in the parameters' dtype, else Error -> [..., dim]. Probe: "hidden", after the activation.
  [[nodiscard]] Tensor operator()(const Tensor& x, const Pass& pass = {}, Site site = Site::current()) const;

  const Linear& in() const { return in_; }
  const Linear& out() const { return out_; }

 private:
  Linear in_, out_;
  std::unique_ptr<Linear> gate_;  // for swiglu
  Dropout dropout_;
  Activation activation_;
};

}  // namespace whence
