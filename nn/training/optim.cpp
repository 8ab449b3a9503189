#include "nn/training/optim.h"

#include <algorithm>
#include <cmath>

#include "autograd/backward.h"
#include "autograd/graph.h"
#include "tensor/error.h"
#include "tensor/kernels.h"
#include "tensor/raw.h"

namespace whence {

bool trained(const Module::Parameter& parameter) { return tracked(parameter.tensor); }

// ---- Clipping

namespace {

// Throws Error that names all trained parameters without a gradient.
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

// Returns [1] f64 on the gradients' device: the sum, in a fixed order, of squares of all gradients divided by `unit`.
Tensor sum_of_gradient_squares(const std::vector<Module::Parameter>& parameters, double unit = 1) {
  std::vector<Tensor> gradients;
  for (const Module::Parameter& parameter : parameters) {
    if (!trained(parameter)) continue;
    gradients.push_back(raw::contiguous(detail::gradient_as_held(parameter.tensor)));
    raw::require_same_device("optimiser", "a gradient", gradients[0], "another", gradients.back());
  }
  if (gradients.empty()) return Tensor::zeros({1}, DType::f64);
  const Tensor sum = Tensor::empty({1}, DType::f64, gradients[0].device());
  kernels(sum.device()).sum_of_squares(gradients, unit, sum);
  return sum;
}

// Squares of f64 gradients can overflow although the norm does not. Then gradients are divided by the largest one.
// Throws NotFinite with the name of the first parameter that has a gradient that is not finite.
double norm_after_overflow(const std::vector<Module::Parameter>& parameters) {
  double largest = 0;
  for (const Module::Parameter& parameter : parameters) {
    if (!trained(parameter)) continue;
    const std::vector<double> values = detail::gradient_as_held(parameter.tensor).to_vector();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i]))
        throw NotFinite(error_at_call_site(
            "optimiser", to_text("the gradient of ", parameter.path, " is ", values[i], " at element ", i, " of ",
                             parameter.tensor.shape(),
                             "; finite gradients required; lower the learning rate, or find the op with CheckFinite")));
      largest = std::max(largest, std::abs(values[i]));
    }
  }
  const double rescaled = largest * std::sqrt(sum_of_gradient_squares(parameters, largest).item());
  if (!std::isfinite(rescaled))
    throw NotFinite(error_at_call_site(
        "optimiser", to_text("the norm of all gradients exceeds f64; gradients up to ", largest, " were given")));
  return rescaled;
}

}  // namespace

GradientNorm clip_by_global_norm(
    const std::vector<Module::Parameter>& parameters, double max_norm, std::optional<double> loss_scale, Site site) {
  const CallSite place(site);
  const double scale = loss_scale.value_or(1);
  require_clipping(max_norm, scale);
  require_gradients(parameters);
  double norm = std::sqrt(sum_of_gradient_squares(parameters).item());
  if (!loss_scale && !std::isfinite(norm)) norm = norm_after_overflow(parameters);
  return {norm / scale, clip_factor(norm / scale, max_norm, scale)};
}

// ---- Optimisers

namespace {

void require_trainable(const Module::Parameter& parameter, bool masters) {
  const DType dtype = parameter.tensor.dtype();
  if (dtype == DType::f32 || dtype == DType::f64 || (masters && compute_dtype(dtype) != dtype)) return;
  fail("optimiser", "parameter ", parameter.path, " is ", dtype, "; f32 or f64 required",
      compute_dtype(dtype) != dtype ? ", or AdamOptions::masters" : "");
}

void require_decay(double decay) {
  if (!(decay >= 0) || !std::isfinite(decay))
    fail("optimiser", "weight decay ", decay, " given; a finite number of 0 or more required");
}

void require_options(const AdamOptions& options) {
  const auto in_unit = [](double beta) { return beta >= 0 && beta < 1; };
  if (!in_unit(options.beta1) || !in_unit(options.beta2))
    fail("optimiser", "betas ", options.beta1, " and ", options.beta2, " given; 0 <= beta < 1 required");
  if (const auto kept = static_cast<float>(options.epsilon); !(kept > 0) || !std::isfinite(kept))
    fail("optimiser", "epsilon ", options.epsilon, " given; a finite number above 0 required, in f32 too");
  require_decay(options.weight_decay);
}

void require_options(const SgdOptions& options) {
  if (!(options.momentum >= 0 && options.momentum < 1))
    fail("optimiser", "momentum ", options.momentum, " given; 0 <= momentum < 1 required");
  if (options.nesterov && options.momentum == 0)
    fail("optimiser", "Nesterov's step without momentum given; a momentum above 0 required");
  require_decay(options.weight_decay);
}

}  // namespace

Optimizer::Optimizer(const Module& module, int moments, bool masters, const Site& site) {
  const CallSite place(site);
  for (Module::Parameter& parameter : module.parameters()) {
    if (parameter.frozen) continue;
    require_trainable(parameter, masters);
    const Tensor weight = parameter.tensor.detach();
    const bool narrow = size_of(weight.dtype()) == 2;
    const DType dtype = narrow ? DType::f32 : weight.dtype();
    const auto moment = [&](int number) {
      return number <= moments ? Tensor::zeros(weight.shape(), dtype, weight.device()) : Tensor();
    };
    moments_.push_back({moment(1), moment(2), narrow ? raw::cast(weight, dtype) : Tensor()});
    were_.emplace_back(weight.dtype(), weight.device());
    parameters_.push_back(std::move(parameter));
  }
}

// Returns `options` if they are in range.
template <class Options> static const Options& checked(const Options& options, const Site& site) {
  const CallSite place(site);
  require_options(options);
  return options;
}

Adam::Adam(const Module& module, const AdamOptions& options, Site site)
    : Optimizer(module, 2, checked(options, site).masters, site), options_(options) {}

Sgd::Sgd(const Module& module, const SgdOptions& options, Site site)
    : Optimizer(module, options.momentum > 0 ? 1 : 0, checked(options, site).masters, site), options_(options) {}

AdamStep Adam::next_step(double learning_rate, double gradient_scale) const {
  const double decay = options_.weight_decay;
  return {learning_rate, options_.beta1, options_.beta2, options_.epsilon, options_.decoupled ? decay : 0,
      options_.decoupled ? 0 : decay, gradient_scale, steps() + 1};
}

void Optimizer::require_ready(double learning_rate) const {
  if (!(learning_rate >= 0) || !std::isfinite(learning_rate))
    fail("optimiser", "learning rate ", learning_rate, " given; a finite number of 0 or more required");
  for (std::size_t k = 0; k < parameters_.size(); ++k) {
    const Tensor& weight = parameters_[k].tensor;
    const auto& [then, where] = were_[k];
    const DType now = weight.dtype();
    if (!(weight.device() == where)) {
      fail("optimiser", to_text("parameter ", parameters_[k].path, " is on ", to_string(weight.device()),
                            " and was on ", to_string(where), "; move the model before making the optimiser"));
    }
    if (moments_[k].master.defined() ? compute_dtype(now) == now : now != then) {
      fail("optimiser",
          to_text("parameter ", parameters_[k].path, " is ", now, " and was ",
              moments_[k].master.defined() ? "of 16 bits" : to_string(then), "; cast before making the optimiser"));
    }
  }
}

void Optimizer::write(const std::function<void(std::span<const AdamEntry>)>& update, const Site& site) {
  std::vector<AdamEntry> entries;
  for (std::size_t k = 0; k < parameters_.size(); ++k) {
    if (!trained(parameters_[k])) continue;
    const Tensor& weight = parameters_[k].tensor;
    const auto& [first, second, master] = moments_[k];
    entries.push_back({raw::contiguous(detail::gradient_as_held(weight)), master.defined() ? master : weight.detach(),
        first, second, master.defined() ? weight.detach() : Tensor(), parameters_[k].decays, parameters_[k].bounds.low,
        parameters_[k].bounds.high});
    weight.storage().written(site);
  }
  if (!entries.empty()) update(entries);
}

// The rule is AdamRule::update of tensor/adam.h.
void Adam::update(std::span<const AdamEntry> entries, double learning_rate, double gradient_scale) {
  kernels(entries[0].weight.device()).adam_all(next_step(learning_rate, gradient_scale), {}, entries);
}

void Adam::prepare(double learning_rate, double max_norm, double loss_scale, double terms, Site site) {
  const CallSite place(site);
  require_ready(learning_rate);
  require_clipping(max_norm, loss_scale);
  if (moments().empty()) fail("optimiser", "no trained parameters given; a replayed step needs one or more");
  const Device device = moments()[0].first.device();
  if (!controls_.defined()) controls_ = Tensor::empty({control_count}, DType::f64, device);
  const auto controls = step_controls(next_step(learning_rate, 1), max_norm, loss_scale, terms);
  const Tensor numbers = Tensor::of(std::vector<double>(controls.begin(), controls.end()), {control_count}, DType::f64);
  raw::copy_into(raw::to_device(numbers, device), controls_);
}

void Adam::launch(Site site) {
  const CallSite place(site);
  if (!controls_.defined()) fail("optimiser", "step of a replay before prepare; call prepare before each step");
  require_gradients(parameters());
  Kernels& device = kernels(controls_.device());
  device.clip_scale(sum_of_gradient_squares(parameters()), controls_);
  write([&](std::span<const AdamEntry> entries) { device.adam_all(next_step(0, 1), controls_, entries); }, site);
}

GradientNorm Adam::finish(Site site) {
  if (!controls_.defined()) fail("optimiser", "finish of a replay before prepare; replay a step first");
  const std::vector<double> controls = controls_.to_vector();
  const auto number = [&](Control control) { return controls[static_cast<std::size_t>(control)]; };
  const GradientNorm norm{number(Control::norm), number(Control::gradient_scale)};
  if (!norm.finite()) return norm;
  set_steps(steps() + 1);
  for (const Module::Parameter& parameter : parameters())
    if (trained(parameter)) parameter.tensor.storage().written(site);
  return norm;
}

// g = s g (+ l2 w);  m = mu m + g;  w -= rate m, or with Nesterov rate (g + mu m)
void Sgd::update(std::span<const AdamEntry> entries, double learning_rate, double gradient_scale) {
  const auto times = [](const Tensor& x, double by) { return raw::unary(functions::Affine{}, x, {by, 0}); };
  for (const AdamEntry& entry : entries) {
    Tensor g = times(detail::in_dtype(entry.gradient, entry.weight.dtype()), gradient_scale);
    if (entry.decays && options_.weight_decay > 0) raw::add_into(times(entry.weight, options_.weight_decay), g);
    if (const Tensor& m = entry.first; m.defined()) {
      raw::copy_into(raw::add(times(m, options_.momentum), g), m);
      g = options_.nesterov ? raw::add(g, times(m, options_.momentum)) : m;
    }
    raw::add_into(times(g, -learning_rate), entry.weight);
    if (std::isfinite(entry.low) || std::isfinite(entry.high))
      kernels(entry.weight).unary(functions::Clamp{}, {entry.low, entry.high}, entry.weight, entry.weight);
    if (entry.shadow.defined()) raw::copy_into(entry.weight, entry.shadow);
  }
}

void Optimizer::step(double learning_rate, double gradient_scale, Site site) {
  const CallSite place(site);
  require_ready(learning_rate);
  if (!(gradient_scale >= 0) || !std::isfinite(gradient_scale))
    fail("optimiser", "gradient scale ", gradient_scale, " given; a finite number of 0 or more required");
  step(learning_rate, {clip_by_global_norm(parameters_, 1, {}, site).value, gradient_scale}, site);
}

void Optimizer::step(double learning_rate, const GradientNorm& norm, Site site) {
  const CallSite place(site);
  require_ready(learning_rate);
  require_gradients(parameters_);
  if (!norm.finite() || !std::isfinite(norm.scale))
    fail("optimiser", "a norm of ", norm.value, " given; a finite one required; leave the step out");
  write([&](std::span<const AdamEntry> entries) { update(entries, learning_rate, norm.scale); }, site);
  ++steps_;
}

void Optimizer::zero_gradients() {
  for (const Module::Parameter& parameter : parameters_)
    if (trained(parameter)) clear_gradient(parameter.tensor);
}

}  // namespace whence
