#include "nn/training/replayed_adam.h"

#include "tensor/backend.h"
#include "tensor/device/allocator.h"
#include "tensor/kernels.h"

namespace whence {

void ReplayedAdam::prepare(double learning_rate, double max_norm, double loss_scale, double terms, Site site) {
  const CallSite place(site);
  adam_.require_ready(learning_rate);
  require_clipping(max_norm, loss_scale);
  if (adam_.moments().empty()) fail("optimiser", "no trained parameters given; a replayed step needs one or more");
  const Device device = adam_.moments()[0].first.device();
  if (!controls_.defined()) controls_ = Tensor::empty({control_count}, DType::f64, device);
  const std::array<double, control_count> controls =
      step_controls(adam_.next_step(learning_rate, 1), max_norm, loss_scale, terms);
  memory_of(device).source().copy_from_cpu(controls.data(), controls_.bytes(), sizeof controls);
}

void ReplayedAdam::step(Site site) {
  const CallSite place(site);
  if (!controls_.defined()) fail("optimiser", "step of a replay before prepare; call prepare before each step");
  require_gradients(adam_.parameters());
  Kernels& device = kernels(controls_.device());
  device.clip_scale(sum_of_gradient_squares(adam_.parameters()), controls_);
  adam_.write(
      [&](std::span<const AdamEntry> entries) { device.adam_all(adam_.next_step(0, 1), controls_, entries); }, site);
}

GradientNorm ReplayedAdam::finish(Site site) {
  if (!controls_.defined()) fail("optimiser", "finish of a replay before prepare; replay a step first");
  const std::vector<double> controls = controls_.to_vector();
  const auto number = [&](Control control) { return controls[static_cast<std::size_t>(control)]; };
  const GradientNorm norm{number(Control::norm), number(Control::gradient_scale)};
  if (!norm.finite()) return norm;
  adam_.set_steps(adam_.steps() + 1);
  for (const Module::Parameter& parameter : adam_.parameters())
    if (trained(parameter)) parameter.tensor.storage().written(site);
  return norm;
}

}  // namespace whence
