#include "nn/training/optim.h"

#include <cmath>

#include "autograd/backward.h"
#include "autograd/node.h"
#include "tensor/kernels.h"
#include "tensor/raw.h"

namespace whence {
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

void Optimizer::write(const Update& update, const Site& site) {
  std::vector<AdamEntry> entries;
  for (std::size_t k = 0; k < parameters_.size(); ++k) {
    if (!trained(parameters_[k])) continue;
    const Tensor& weight = parameters_[k].tensor;
    const auto& [first, second, master] = moments_[k];
    entries.push_back({raw::contiguous(detail::gradient_as_held(weight)), master.defined() ? master : weight.detach(),
        first, second, master.defined() ? weight.detach() : Tensor(), parameters_[k].decays});
    weight.storage().written(site);
  }
  if (entries.empty()) return;
  update(entries);
  for (std::size_t k = 0; k < parameters_.size(); ++k) {
    if (!trained(parameters_[k])) continue;
    Module::Parameter held = parameters_[k];
    if (moments_[k].master.defined()) held.tensor = moments_[k].master;
    held.put_inside_bounds();
    parameters_[k].put_inside_bounds();
  }
}

void Adam::update(std::span<const AdamEntry> entries, double learning_rate, double gradient_scale) {
  kernels(entries[0].weight.device()).adam_all(next_step(learning_rate, gradient_scale), {}, entries);
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
    if (entry.shadow.defined()) raw::copy_into(entry.weight, entry.shadow);
  }
}

void Optimizer::take(double learning_rate, double gradient_scale, const Site& site) {
  write([&](std::span<const AdamEntry> entries) { update(entries, learning_rate, gradient_scale); }, site);
  ++steps_;
}

void Optimizer::step(double learning_rate, double gradient_scale, Site site) {
  const CallSite place(site);
  require_ready(learning_rate);
  if (!(gradient_scale >= 0) || !std::isfinite(gradient_scale))
    fail("optimiser", "gradient scale ", gradient_scale, " given; a finite number of 0 or more required");
  static_cast<void>(clip_by_global_norm(parameters_, 1, {}, site));  // throws before anything changes
  take(learning_rate, gradient_scale, site);
}

void Optimizer::step(double learning_rate, const GradientNorm& norm, Site site) {
  const CallSite place(site);
  require_ready(learning_rate);
  require_gradients(parameters_);
  if (!norm.finite() || !std::isfinite(norm.scale))
    fail("optimiser", "a norm of ", norm.value, " given; a finite one required; leave the step out");
  take(learning_rate, norm.scale, site);
}

void Optimizer::zero_gradients() {
  for (const Module::Parameter& parameter : parameters_)
    if (trained(parameter)) clear_gradient(parameter.tensor);
}

}  // namespace whence
