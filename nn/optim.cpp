// Adam, AdamW and clipping by the global norm.
#include "nn/optim.h"

#include <cmath>

#include "autograd/backward.h"
#include "tensor/kernels.h"
#include "tensor/parallel.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// Freezing takes a parameter's link away, so this also holds for one that was frozen after the list was made.
bool trained(const Module::Parameter& parameter) { return tracked(parameter.tensor); }

void require_gradients(const std::vector<Module::Parameter>& parameters) {
  std::string missing;
  for (const Module::Parameter& parameter : parameters) {
    if (trained(parameter) && !gradient(parameter.tensor).defined()) missing += (missing.empty() ? "" : ", ") + parameter.path;
  }
  if (missing.empty()) return;
  fail("optimiser", concat("no path from the loss to parameters ", missing,
                           "; a gradient for every parameter required; call backward first, use them in the loss, or freeze them"));
}

// sum (x / unit)^2, in partial sums over fixed chunks.
template <class T>
double sum_of_squares(const Tensor& x, double unit) {
  constexpr index_t grain = 1 << 14;
  const T* in = x.data<T>();
  std::vector<double> partial(static_cast<std::size_t>((x.numel() + grain - 1) / grain));
  parallel_for(x.numel(), grain, [&](index_t begin, index_t end) {
    double sum = 0;
    for (index_t i = begin; i < end; ++i) sum += (static_cast<double>(in[i]) / unit) * (static_cast<double>(in[i]) / unit);
    partial[static_cast<std::size_t>(begin / grain)] = sum;
  });
  double total = 0;
  for (const double sum : partial) total += sum;
  return total;
}

// The largest magnitude. Throws Error naming the parameter when a gradient is infinite or NaN.
template <class T>
double largest_finite(const Tensor& x, const std::string& path) {
  const T* in = x.data<T>();
  double largest = 0;
  for (index_t i = 0; i < x.numel(); ++i) {
    const double magnitude = std::abs(static_cast<double>(in[i]));
    if (!std::isfinite(magnitude)) {
      fail("optimiser", concat("the gradient of ", path, " is ", static_cast<double>(in[i]), " at element ", i, " of ", x.shape(),
                               "; finite gradients required; lower the learning rate, or find the op with CheckFinite"));
    }
    largest = std::max(largest, magnitude);
  }
  return largest;
}

template <class F>
auto visit_trainable(const Module::Parameter& parameter, F&& f) {
  const DType dtype = parameter.tensor.dtype();
  if (dtype == DType::f32) return f(Type<float>{});
  if (dtype == DType::f64) return f(Type<double>{});
  fail("optimiser", concat("parameter ", parameter.path, " is ", dtype, "; f32 or f64 required"));
}

Tensor gradient_on_cpu(const Module::Parameter& parameter) {
  return raw::to_device(raw::contiguous(gradient(parameter.tensor)), Device::cpu());
}

double norm_in_units_of(double unit, const std::vector<Module::Parameter>& parameters) {
  double total = 0;
  for (const Module::Parameter& parameter : parameters) {
    if (!trained(parameter)) continue;
    total += visit_trainable(parameter, [&]<class T>(Type<T>) { return sum_of_squares<T>(gradient_on_cpu(parameter), unit); });
  }
  return std::sqrt(total);
}

// Squares of f64 gradients can overflow although the norm does not: then everything is measured in units of the largest gradient.
double global_norm(const std::vector<Module::Parameter>& parameters) {
  require_gradients(parameters);
  const double norm = norm_in_units_of(1, parameters);
  if (std::isfinite(norm)) return norm;
  double largest = 0;
  for (const Module::Parameter& parameter : parameters) {
    if (!trained(parameter)) continue;
    const Tensor dx = gradient_on_cpu(parameter);
    largest = std::max(largest, visit_trainable(parameter, [&]<class T>(Type<T>) { return largest_finite<T>(dx, parameter.path); }));
  }
  const double rescaled = largest * norm_in_units_of(largest, parameters);
  if (!std::isfinite(rescaled))
    fail("optimiser", concat("the norm of all gradients exceeds f64; gradients up to ", largest, " were given"));
  return rescaled;
}

void require_options(const AdamOptions& options) {
  const auto in_unit = [](double beta) { return beta >= 0 && beta < 1; };
  if (!in_unit(options.beta1) || !in_unit(options.beta2)) {
    fail("optimiser", concat("betas ", options.beta1, " and ", options.beta2, " given; 0 <= beta < 1 required"));
  }
  if (!(options.epsilon > 0) || !std::isfinite(options.epsilon)) {
    fail("optimiser", concat("epsilon ", options.epsilon, " given; a finite number above 0 required"));
  }
  if (!(options.weight_decay >= 0) || !std::isfinite(options.weight_decay)) {
    fail("optimiser", concat("weight decay ", options.weight_decay, " given; a finite number of 0 or more required"));
  }
}

}  // namespace

GradientNorm clip_by_global_norm(const std::vector<Module::Parameter>& parameters, double max_norm, Site at) {
  const CallSite place(at);
  if (!(max_norm > 0)) fail("optimiser", concat("maximal norm ", max_norm, " given; a number above 0 required"));
  const double norm = global_norm(parameters);
  return {norm, norm > max_norm ? max_norm / norm : 1.0};
}

Adam::Adam(const Module& module, const AdamOptions& options, Site at) : options_(options) {
  const CallSite place(at);
  require_options(options);
  for (Module::Parameter& parameter : module.parameters()) {
    if (parameter.frozen) continue;
    visit_trainable(parameter, [](auto) {});
    const Tensor& weight = parameter.tensor;
    moments_.push_back(
        {Tensor::zeros(weight.shape(), weight.dtype(), weight.device()), Tensor::zeros(weight.shape(), weight.dtype(), weight.device())});
    parameters_.push_back(std::move(parameter));
  }
}

void Adam::step(double learning_rate, double gradient_scale, Site at) {
  const CallSite place(at);
  if (!(learning_rate >= 0) || !std::isfinite(learning_rate)) {
    fail("optimiser", concat("learning rate ", learning_rate, " given; a finite number of 0 or more required"));
  }
  if (!(gradient_scale >= 0) || !std::isfinite(gradient_scale)) {
    fail("optimiser", concat("gradient scale ", gradient_scale, " given; a finite number of 0 or more required"));
  }
  for (std::size_t k = 0; k < parameters_.size(); ++k) {
    const DType now = parameters_[k].tensor.dtype(), then = moments_[k].first.dtype();
    if (now != then)
      fail("optimiser", concat("parameter ", parameters_[k].path, " is ", now, " and was ", then, "; cast before making Adam"));
  }
  static_cast<void>(global_norm(parameters_));  // refuses before anything is changed
  ++steps_;
  for (std::size_t k = 0; k < parameters_.size(); ++k) {
    if (!trained(parameters_[k])) continue;
    const Tensor& weight = parameters_[k].tensor;
    const double decay = parameters_[k].decays ? options_.weight_decay : 0;
    const AdamStep now{
        learning_rate,  options_.beta1, options_.beta2, options_.epsilon, options_.decoupled ? decay : 0, options_.decoupled ? 0 : decay,
        gradient_scale, steps_};
    kernels(weight.device()).adam(now, raw::contiguous(gradient(weight)), weight, moments_[k].first, moments_[k].second);
    weight.storage().written(at);
    parameters_[k].put_inside_bounds();
  }
}

void Adam::zero_gradients() {
  for (const Module::Parameter& parameter : parameters_) {
    if (trained(parameter)) clear_gradient(parameter.tensor);
  }
}

}  // namespace whence
