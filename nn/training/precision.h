// Training in 16 bits: f32 masters of a model, and the loss scale that f16 needs.  (Micikevicius et al. 2017)
//
// The policy. A model has one storage dtype: f32, bf16 or f16. Everything in it follows from that:
//   - Parameters and activations are stored in it. Inside an op all arithmetic is in f32 and rounded once, when stored:
//     sums of products, norms, softmax rows, running sums, gradients over a batch. Ops never promote silently: mixing
//     dtypes throws Error.
//   - No parameter of a 16-bit model is f32. A norm's weight in f32 would need its activations in f32, by the rule
//     above, and the masters already hold what 16 bits cannot.
//   - The optimiser trains the masters. An update of 1e-4 of a weight is below bf16's resolution (1/256) and half of
//     f16's (1/2048), and would be lost.
//   - f32 for any storage: masters, moments, a parameter's gradient once it is a sum of several terms (tied tables,
//     strips of rows, accumulated batches), losses, the norm of the gradients.
//   - Schemes compute positions, distances, angles and tables in f64 and round once, when they are combined with scores.
//     CoPE's and forgetting's running sums, KERPLE's and FIRE's logarithms are in f32, because a sum of gates in 16 bits
//     stops counting at 2048 (f16) or at 256 (bf16). The gates themselves are activations: from a logit of 8.32 (f16) or
//     6.25 (bf16) on they are exactly 1 and have no gradient. `precision` prints all such limits.
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

// The loss scale, a factor of the loss before backward: as large as the gradients allow. If a gradient is not finite,
// the step is skipped and the scale halved.
class LossScale {
 public:
  // Throws InputError if a scale is no power of two or out of order, or growth_steps is below 1.
  explicit LossScale(const LossScaleOptions& options = {});

  double value() const { return state_.value; }
  // Returns the scale for a sum of `terms` losses; value() is the scale for a mean. The divisor is the power of two at
  // or above `terms`, so no digit changes.
  double for_sum_of(double terms) const;

  // Call it after the gradients of `step`; `finite`: they all were. Throws NotFinite if the scale would fall below its
  // least.
  void update(bool finite, index_t step);

  // The state that a checkpoint saves.
  struct State {
    double value = 0;
    index_t good_steps = 0;  // in a row
    index_t skipped = 0;     // steps skipped so far
  };
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  LossScaleOptions options_;
  State state_;
};

// "f32", "bf16", "f16". Throws InputError for other names.
DType storage_dtype_of(const std::string& name);

// A model in its storage dtype, its optimiser, and its weights in f32.
class MixedPrecision {
 public:
  // Takes an initialised f32 model and casts it to `storage`. Its f32 weights become the masters. REQUIRES: the model
  // outlives this.
  MixedPrecision(Module& model, DType storage, const AdamOptions& options, const LossScaleOptions& scaling = {})
      : MixedPrecision(OptimizerOptions(options), model, storage, scaling) {}
  // The same with any optimiser.
  MixedPrecision(const OptimizerOptions& options, Module& model, DType storage, const LossScaleOptions& scaling = {});

  Optimizer& optimizer() { return *optimizer_; }
  std::optional<LossScale>& loss_scale() { return loss_scale_; }  // f16 only
  const std::optional<LossScale>& loss_scale() const { return loss_scale_; }

  // Returns f32 weights by path, in the order of the model's parameters, for checkpoints and files of weights. In f32
  // they are the model's own tensors.
  const std::vector<Module::Parameter>& weights() const { return weights_; }
  // Call it after weights() were written, for example from a checkpoint: rounds them into the model.
  void round_weights() const;

 private:
  static std::unique_ptr<Optimizer> made_for(Module& model, DType storage, const OptimizerOptions& options);

  std::vector<Module::Parameter> weights_, rounded_;  // f32, and the model's
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<LossScale> loss_scale_;
};

}  // namespace whence
