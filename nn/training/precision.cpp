#include "nn/training/precision.h"

#include <cmath>

#include "tensor/error.h"
#include "tensor/raw.h"
#include "tensor/suggest.h"

namespace whence {
namespace {

bool is_power_of_two(double x) {
  int exponent = 0;
  return x > 0 && std::isfinite(x) && std::frexp(x, &exponent) == 0.5;
}

std::vector<Module::Parameter> copies_of(std::vector<Module::Parameter> parameters) {
  for (Module::Parameter& each : parameters) each.tensor = raw::copy(each.tensor.detach());
  return parameters;
}

}  // namespace

LossScale::LossScale(const LossScaleOptions& options) : options_(options), state_{.value = options.initial} {
  if (!is_power_of_two(options.initial) || !is_power_of_two(options.least) || !is_power_of_two(options.most) ||
      options.least > options.initial || options.initial > options.most)
    throw InputError("loss scale: ", options.initial, " between ", options.least, " and ", options.most,
        " given; powers of two in this order required, because they change no digits of a gradient");
  if (options.growth_steps < 1)
    throw InputError("loss scale: growth after ", options.growth_steps, " steps given; 1 or more required");
}

double LossScale::for_sum_of(double terms) const { return state_.value * std::exp2(-std::ceil(std::log2(terms))); }

void LossScale::update(bool finite, index_t step) {
  if (finite) {
    if (++state_.good_steps < options_.growth_steps) return;
    state_.value = std::fmin(2 * state_.value, options_.most);
    state_.good_steps = 0;
    return;
  }
  ++state_.skipped;
  state_.good_steps = 0;
  if (state_.value / 2 < options_.least)
    throw NotFinite("loss scale: gradients that are not finite at step ", step, " with a loss scale of ", state_.value,
        "; finite ones at a scale of ", options_.least,
        " or more required; train in bf16, which needs no scale, lower the "
        "learning rate, or find the op with CheckFinite");
  state_.value /= 2;
}

DType storage_dtype_of(const std::string& name) {
  return chosen("precision", name, {DType::f32, DType::f16, DType::bf16});
}

// The model is cast first, because an optimiser takes the parameters as they are.
std::unique_ptr<Optimizer> MixedPrecision::made_for(Module& model, DType storage, const OptimizerOptions& options) {
  if (storage != DType::f32) model.to(storage);
  return std::visit(
      [&]<class Options>(Options of) -> std::unique_ptr<Optimizer> {
        of.masters = storage != DType::f32;
        return std::make_unique<std::conditional_t<std::is_same_v<Options, AdamOptions>, Adam, Sgd>>(model, of);
      },
      options);
}

MixedPrecision::MixedPrecision(
    const OptimizerOptions& options, Module& model, DType storage, const LossScaleOptions& scaling)
    : weights_(storage == DType::f32 ? model.parameters() : copies_of(model.parameters())),
      optimizer_(made_for(model, storage, options)) {
  if (storage == DType::f32) return;
  rounded_ = model.parameters();
  std::size_t trained = 0;  // frozen parameters have no master in the optimiser
  for (Module::Parameter& weight : weights_) {
    if (weight.frozen) continue;
    const Tensor& master = optimizer_->moments()[trained++].master;
    raw::copy_into(weight.tensor, master);
    weight.tensor = master;
  }
  if (storage == DType::f16) loss_scale_.emplace(scaling);
}

void MixedPrecision::round_weights() const {
  for (std::size_t k = 0; k < rounded_.size(); ++k) raw::copy_into(weights_[k].tensor, rounded_[k].tensor.detach());
}

}  // namespace whence
