// The feed-forward half of a transformer block.
//   y = f(x W1' + b1) W2' + b2,   or gated (Shazeer 2020):   y = (silu(x G') * x W1') W2'
#pragma once

#include <memory>
#include <string>

#include "nn/layers/dropout.h"
#include "nn/layers/linear.h"

namespace whence {

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
