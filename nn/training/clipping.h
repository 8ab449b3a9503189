// Clipping by the global norm of all gradients (Pascanu et al. 2013, Algorithm 1).
#pragma once

#include <cmath>
#include <optional>
#include <vector>

#include "nn/layers/module.h"

namespace whence {

struct GradientNorm {
  double value;  // of all gradients divided by the loss scale, before clipping; not finite when a gradient is not
  // What gradients are to be multiplied by: min(1, max_norm / value) / loss_scale.
  // 1 / loss_scale when value is 0, NaN when value is not finite.
  double scale;
  bool finite() const { return std::isfinite(value); }
};

// sqrt(sum of squares of all gradients), summed in f64 in a fixed order. Gradients stay as they are: give the result to
// Optimizer::step. Throws Error that names all parameters without a path from the loss, NotFinite that names the first
// with a gradient that is not finite. Frozen parameters do not count, the others are on one device. max_norm is above
// 0, else Error; infinity clips nothing.
// With a loss scale, finite and above 0, the gradients are those of loss_scale times the loss (precision f16 needs
// this), and `scale` divides by it. Gradients that are not finite are then a result and no error: a loss scale that was
// too large makes them.
[[nodiscard]] GradientNorm clip_by_global_norm(const std::vector<Module::Parameter>& parameters, double max_norm,
    std::optional<double> loss_scale = {}, Site site = Site::current());

// ---- Its parts, for optimisers.

// False for frozen parameters. Freezing takes a parameter's link away, so this also holds for one frozen late.
bool trained(const Module::Parameter& parameter);
// Error that names all trained parameters without a gradient.
void require_gradients(const std::vector<Module::Parameter>& parameters);
void require_clipping(double max_norm, double loss_scale);
// Returns [1] f64 on the gradients' device: the sum, in a fixed order, of squares of all gradients divided by `unit`.
Tensor sum_of_gradient_squares(const std::vector<Module::Parameter>& parameters, double unit = 1);

}  // namespace whence
