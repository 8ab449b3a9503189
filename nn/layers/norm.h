// Normalisation over the last axis.
//   layer norm (Ba et al. 2016):          (x - mean) / sqrt(variance + epsilon) * weight + bias
//   RMS norm (Zhang and Sennrich 2019):   x / sqrt(mean(x^2) + epsilon) * weight
#pragma once

#include "autograd/ops.h"
#include "nn/layers/module.h"

namespace whence {

enum class NormKind : unsigned char { layer, rms };

class Norm final : public Module {
 public:
  // weight [dim] ones, and for layer norm bias [dim] zeros at first; neither decays. Error unless dim, epsilon > 0.
  explicit Norm(index_t dim, NormKind kind = NormKind::layer, double epsilon = 1e-5);

  // x [..., dim] in the weight's dtype, else Error -> [..., dim]
  [[nodiscard]] Tensor operator()(const Tensor& x, Site site = Site::current()) const;

  // {x + added, its norm}: one kernel in each direction on a GPU
  [[nodiscard]] SumAndNorm of_sum(const Tensor& x, const Tensor& added, Site site = Site::current()) const;

  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }  // undefined in RMS norm
  double epsilon() const { return epsilon_; }

 private:
  Tensor weight_, bias_;
  NormKind kind_;
  double epsilon_;
};

}  // namespace whence
