#include "nn/training/clipping.h"

#include <algorithm>
#include <cmath>

#include "autograd/backward.h"
#include "autograd/node.h"
#include "tensor/adam.h"
#include "tensor/kernels.h"
#include "tensor/raw.h"
#include "tensor/suggest.h"

namespace whence {
namespace {

// Returns the largest magnitude. Throws NotFinite with the parameter's name if a gradient is infinite or NaN.
double largest_finite(const Module::Parameter& parameter) {
  const std::vector<double> values = detail::gradient_as_held(parameter.tensor).to_vector();
  double largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      throw NotFinite(error_at_call_site(
          "optimiser", to_text("the gradient of ", parameter.path, " is ", values[i], " at element ", i, " of ",
                           parameter.tensor.shape(),
                           "; finite gradients required; lower the learning rate, or find the op with CheckFinite")));
    }
    largest = std::max(largest, std::abs(values[i]));
  }
  return largest;
}

// Returns the trained parameters' gradients, contiguous and on one device.
std::vector<Tensor> gradients_of(const std::vector<Module::Parameter>& parameters) {
  std::vector<Tensor> gradients;
  for (const Module::Parameter& parameter : parameters) {
    if (!trained(parameter)) continue;
    gradients.push_back(raw::contiguous(detail::gradient_as_held(parameter.tensor)));
    raw::require_same_device("optimiser", "a gradient", gradients[0], "another", gradients.back());
  }
  return gradients;
}

double norm_in_units_of(double unit, const std::vector<Module::Parameter>& parameters) {
  return std::sqrt(sum_of_gradient_squares(parameters, unit).item());
}

// Squares of f64 gradients can overflow although the norm does not. Then gradients are divided by the largest one.
// Throws NotFinite with the name of the first parameter that has a gradient that is not finite.
double norm_after_overflow(const std::vector<Module::Parameter>& parameters) {
  double largest = 0;
  for (const Module::Parameter& parameter : parameters)
    if (trained(parameter)) largest = std::max(largest, largest_finite(parameter));
  const double rescaled = largest * norm_in_units_of(largest, parameters);
  if (!std::isfinite(rescaled))
    throw NotFinite(error_at_call_site(
        "optimiser", to_text("the norm of all gradients exceeds f64; gradients up to ", largest, " were given")));
  return rescaled;
}

}  // namespace

bool trained(const Module::Parameter& parameter) { return tracked(parameter.tensor); }

void require_gradients(const std::vector<Module::Parameter>& parameters) {
  std::vector<std::string> missing;
  for (const Module::Parameter& parameter : parameters)
    if (trained(parameter) && !detail::gradient_as_held(parameter.tensor).defined()) missing.push_back(parameter.path);
  if (missing.empty()) return;
  fail("optimiser", "no path from the loss to parameters ", joined(missing),
      "; a gradient for every parameter required; call backward first, use them in the loss, or freeze them");
}

void require_clipping(double max_norm, double loss_scale) {
  if (!(max_norm > 0)) fail("optimiser", "maximal norm ", max_norm, " given; a number above 0 required");
  if (!(loss_scale > 0) || !std::isfinite(loss_scale))
    fail("optimiser", "loss scale ", loss_scale, " given; a finite number above 0 required");
}

Tensor sum_of_gradient_squares(const std::vector<Module::Parameter>& parameters, double unit) {
  const std::vector<Tensor> gradients = gradients_of(parameters);
  if (gradients.empty()) return Tensor::zeros({1}, DType::f64);
  const Tensor sum = Tensor::empty({1}, DType::f64, gradients[0].device());
  kernels(sum.device()).sum_of_squares(gradients, unit, sum);
  return sum;
}

GradientNorm clip_by_global_norm(
    const std::vector<Module::Parameter>& parameters, double max_norm, std::optional<double> loss_scale, Site site) {
  const CallSite place(site);
  const double scale = loss_scale.value_or(1);
  require_clipping(max_norm, scale);
  require_gradients(parameters);
  double norm = norm_in_units_of(1, parameters);
  if (!loss_scale && !std::isfinite(norm)) norm = norm_after_overflow(parameters);
  return {norm / scale, clip_factor(norm / scale, max_norm, scale)};
}

}  // namespace whence
