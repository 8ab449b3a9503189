// Training in 16 bits: f32 masters of a model, and the loss scale that f16 needs.  (Micikevicius et al. 2017)
//
// The policy. A model has one storage dtype: f32, bf16 or f16. Everything in it follows from that:
//   - Parameters and activations are stored in it. Inside an op all arithmetic is in f32 and is rounded once, when
//     stored: sums of products, norms, softmax rows, running sums, gradients over a batch. Ops never promote in
//     silence: mixing dtypes throws Error.
//   - No parameter of a 16-bit model is f32. A norm's weight in f32 would need its activations in f32, by the rule
//     above, and the masters already hold what 16 bits cannot.
//   - The optimiser trains the masters. An update of 1e-4 of a weight is below bf16's resolution (1/256) and half of
//     f16's (1/2048), and would be lost.
//   - In f32 whatever the storage: masters, moments, a parameter's gradient once it is a sum of several terms
//     (tied tables, strips of rows, accumulated batches), losses, the norm of the gradients.
//   - Schemes work out positions, distances, angles and tables in f64 and round once, when they meet the scores. CoPE's
//     and forgetting's running sums, KERPLE's and FIRE's logarithms are in f32: a sum of gates in 16 bits stops
//     counting at 2048 (f16) or at 256 (bf16). The gates themselves are activations: exactly 1 from a logit of 8.32 on
//     in f16, from 6.25 on in bf16, and from there without a gradient. `precision` prints all such limits.
//   - f16 overflows above 65504: logits, and the gradients of a scaled loss. Masked entries are bool masks, never large
//     negative numbers, so they cannot overflow. Softmax subtracts the row's maximum, so only an infinite logit makes a
//     NaN. An overflow in forward ends the run with an error; the loss scale handles one in backward.
//   - f16 underflows below 6e-8, and gradients of a mean loss often do. So the loss is multiplied by a scale before
//     backward, and the optimiser divides the gradients by it, in f32. bf16 has f32's range and needs no scale.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/training/optim.h"

namespace whence {

struct LossScaleOptions {
  double initial = 65536;  // 2^16; powers of two change no gradient's digits
  double least = 1, most = 16777216;
  index_t growth_steps = 2000;  // good steps in a row after which the scale doubles
};

// What the loss is multiplied by before backward: as large as gradients allow. When one was not finite, the step is
// left out and the scale halved.
class LossScale {
 public:
  // Throws InputError when a scale is no power of two or out of order, or growth_steps below 1.
  explicit LossScale(const LossScaleOptions& options = {});

  double value() const { return state_.value; }
  // Returns the scale of a sum of `terms` losses, as value() is that of their mean. It is divided by the power of two at
  // or above `terms`, which changes no digit.
  double for_sum_of(double terms) const;

  // Call it after the gradients of `step` were made: were they finite? Throws NotFinite when the
  // scale would fall below its least.
  void update(bool finite, index_t step);

  // What a checkpoint saves.
  struct State {
    double value = 0;
    index_t good_steps = 0;  // in a row
    index_t skipped = 0;     // steps left out so far
  };
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  LossScaleOptions options_;
  State state_;
};

// "f32", "bf16", "f16". Throws InputError for others.
DType storage_dtype_of(const std::string& name);

// A model in its storage dtype, its optimiser, and its weights in f32.
class MixedPrecision {
 public:
  // Of an initialised f32 model, which is in `storage` from now on. Its f32 weights become the masters.
  // REQUIRES: the model outlives this.
  MixedPrecision(Module& model, DType storage, const AdamOptions& options, const LossScaleOptions& scaling = {})
      : MixedPrecision(OptimizerOptions(options), model, storage, scaling) {}
  // The same with any optimiser.
  MixedPrecision(const OptimizerOptions& options, Module& model, DType storage, const LossScaleOptions& scaling = {});

  DType storage() const { return storage_; }
  Optimizer& optimizer() { return *optimizer_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  std::optional<LossScale>& loss_scale() { return loss_scale_; }  // of f16 alone
  const std::optional<LossScale>& loss_scale() const { return loss_scale_; }

  // f32, by path, in the order of the model's parameters: what checkpoints and files of weights hold. In f32
  // they are the model's own tensors.
  const std::vector<Module::Parameter>& weights() const { return weights_; }
  // Call it after weights() were written, by a checkpoint for example: rounds them into the model.
  void publish() const;

 private:
  static std::unique_ptr<Optimizer> made_for(Module& model, DType storage, const OptimizerOptions& options);

  DType storage_;
  std::vector<Module::Parameter> weights_, rounded_;  // f32, and the model's
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<LossScale> loss_scale_;
};

}  // namespace whence
