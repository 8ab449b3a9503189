// One step of training: forward, loss, backward, clipping and the optimiser (step.h), in any precision. On a GPU it can
// be recorded once and replayed; ranks can share it.
//   MixedPrecision precision(model, DType::f32, {.weight_decay = 0.1});
//   TrainingStep step(precision, batch, loss_of, {.clip = 1});
//   for (std::int64_t n = 1; n <= schedule_options.steps; ++n) std::cout << step.take(n, schedule(n)).loss << '\n';
#pragma once

#include <string>

#include "nn/training/precision.h"
#include "nn/training/recorded.h"
#include "nn/training/shared.h"

namespace whence {

struct StepOptions {
  std::int64_t accumulate = 1;  // batches whose gradients make one step, over all ranks
  double clip = 1;              // largest global norm of the gradients
  // On a GPU: one graph for all steps (RecordedStep), with the same bits as separate steps. `loss_of` must not draw
  // anew at each step, and must not branch on the numbers of a batch. Adam only.
  bool recorded = false;
  // The ranks that share the parts of a step equally; null: no sharing. Outlives the step. All ranks make the same
  // model from the same seed, and take the same steps. The result is the same on all ranks, and for any number of them.
  Communicator* ranks = nullptr;
};

class TrainingStep {
 public:
  // REQUIRES: `precision` and the model outlive this; `batch` returns the same for the same part, as f16's loss scale asks
  // for the first part of a step twice. InputError if no parameter trains, if recorded with SGD or ranks, or if `accumulate` is
  // no multiple of the ranks.
  TrainingStep(MixedPrecision& precision, MakeBatch batch, LossOf loss_of, const StepOptions& options = {});

  // Takes step 1, 2, ... NotFinite if its loss or a gradient is not finite, or f16's loss scale is at its minimum;
  // Error if it has no target. Nothing but that scale has changed then. A replayed step checks only its gradients
  // before it changes anything, and the loss afterwards. A step with an observer (a capture, a tape, an op clock,
  // CheckFinite) is not replayed.
  StepOutcome take(std::int64_t step, double learning_rate);

  // Stops recording: later steps run without a graph, and the graph's memory is freed. A step that cannot be recorded
  // does so itself: batches of other shapes, numbers read back, no memory for a graph.
  void stop_recording(const std::string& reason);
  bool recorded() const { return replay_.has_value(); }
  const std::string& why_not_recorded() const { return why_not_recorded_; }  // that reason; empty: recording

 private:
  std::int64_t first_part(std::int64_t step) const { return (step - 1) * options_.accumulate + 1; }
  std::optional<double> scale_of(std::int64_t step) const;
  StepOutcome run(std::int64_t step, double learning_rate);
  std::optional<StepOutcome> replayed(std::int64_t step, double learning_rate);

  MixedPrecision& precision_;
  MakeBatch batch_;
  LossOf loss_of_;
  StepOptions options_;
  std::optional<SharedGradients> shared_;
  std::optional<Replay> replay_;  // empty: no recording
  std::string why_not_recorded_;
};

}  // namespace whence
