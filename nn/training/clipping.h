// Clipping by the global norm of all gradients (Pascanu et al. 2013, Algorithm 1).
#pragma once

#include <cmath>
#include <optional>
#include <vector>

#include "nn/layers/module.h"

namespace whence {

struct GradientNorm {
  double value;  // norm of all gradients divided by the loss scale, before clipping; not finite if a gradient is not
  // The factor for the gradients: min(1, max_norm / value) / loss_scale. 1 / loss_scale if value is 0, NaN if value is
  // not finite.
  double scale;
  bool finite() const { return std::isfinite(value); }
};

// Returns sqrt(sum of squares of all gradients), summed in f64 in a fixed order. Does not change the gradients: give
// the result to Optimizer::step. Throws Error that names all parameters without a path from the loss, NotFinite that
// names the first with a gradient that is not finite. Frozen parameters do not count; the others are on one device.
// max_norm must be above 0, else Error; infinity clips nothing.
// With a loss scale (finite, above 0; f16 needs it) the gradients are those of loss_scale times the loss, and `scale`
// divides by it. Gradients that are not finite are then a result and not an error: they mean that the loss scale was
// too large.
[[nodiscard]] GradientNorm clip_by_global_norm(const std::vector<Module::Parameter>& parameters, double max_norm,
    std::optional<double> loss_scale = {}, Site site = Site::current());

// ---- Its parts, for optimisers.

// False for frozen parameters. Freezing removes a parameter's link, so this also holds for one frozen late.
bool trained(const Module::Parameter& parameter);
// Throws Error that names all trained parameters without a gradient.
void require_gradients(const std::vector<Module::Parameter>& parameters);
void require_clipping(double max_norm, double loss_scale);
// Returns [1] f64 on the gradients' device: the sum, in a fixed order, of squares of all gradients divided by `unit`.
Tensor sum_of_gradient_squares(const std::vector<Module::Parameter>& parameters, double unit = 1);

}  // namespace whence
