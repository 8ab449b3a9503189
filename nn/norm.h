// Layer normalisation (Ba et al. 2016): (x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis.
#pragma once

#include "nn/module.h"

namespace whence {

class LayerNorm final : public Module {
 public:
  // weight [dim] ones, bias [dim] zeros at first; neither decays.
  explicit LayerNorm(index_t dim, double epsilon = 1e-5);

  // x [..., dim] -> [..., dim]
  [[nodiscard]] Tensor operator()(const Tensor& x, Site at = Site::current()) const;

 private:
  Tensor weight_, bias_;
  double epsilon_;
};

}  // namespace whence
