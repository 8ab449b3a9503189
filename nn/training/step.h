// A step of training. training.h wraps it: gradients summed over several batches and over ranks, f16's loss scale
// (precision.h), a graph that is replayed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "autograd/backward.h"
#include "nn/training/optim.h"

namespace whence {

struct TrainingBatch {
  std::vector<Tensor> tensors = {};  // on the CPU
  std::int64_t counted = 0;          // targets with a loss
  std::int64_t tokens = 0;           // seen, for the rate of progress
};

// The losses of a batch's targets, summed and not averaged, so that a batch with more targets has more weight, as in
// one large batch. A scalar with a path to every parameter. `part` counts batches from 1. The tensors are on the CPU or
// on the model's device.
using LossOf = std::function<Tensor(const TrainingBatch& batch, std::int64_t part)>;

// Sums over the targets of a batch, or of all batches of a step. Integers in a double are exact.
struct LossSum {
  double loss = 0, targets = 0, tokens = 0;
  // The factor of the loss before backward (precision.h). With a factor, gradients that are not finite are no error.
  std::optional<double> scale = {};
};

struct StepOutcome {
  double loss = 0;           // mean over the step's targets
  double gradient_norm = 0;  // norm of that mean's gradients, before clipping
  std::int64_t tokens = 0;
  bool skipped = false;  // gradients were not finite, so f16's loss scale shrinks and no weight changed
  double seconds = 0;    // duration of the step, if measured
};

// Forward and backward: adds a batch's gradients to those of the parameters. Returns its loss.
inline Tensor add_gradients(
    const TrainingBatch& batch, std::int64_t part, const LossOf& loss_of, std::optional<double> scale = {}) {
  const Tensor loss = loss_of(batch, part);
  backward(loss, scale ? Tensor::full({}, *scale, loss.dtype(), loss.device()) : Tensor());
  return loss.detach();
}

// The whole step. `forward_and_backward` is add_gradients(), or a wrapper of it.
inline StepOutcome step(
    Optimizer& optimizer, const std::function<LossSum()>& forward_and_backward, double learning_rate, double clip) {
  optimizer.zero_gradients();
  const LossSum sum = forward_and_backward();
  GradientNorm norm = clip_by_global_norm(optimizer.parameters(), clip * sum.targets, sum.scale);
  norm.scale /= sum.targets;  // the gradients of the mean
  if (norm.finite()) optimizer.step(learning_rate, norm);
  return {sum.loss / sum.targets, norm.value / sum.targets, static_cast<std::int64_t>(sum.tokens), !norm.finite()};
}

}  // namespace whence
