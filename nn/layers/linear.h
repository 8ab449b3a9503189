// Linear: y = x W' + b.
#pragma once

#include "nn/layers/module.h"

namespace whence {

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

}  // namespace whence
