// Training: steps of several batches (step.h), in any precision (precision.h), which ranks can share and a GPU can
// record once and replay; and their loop.
//   MixedPrecision precision(model, DType::f32, {.weight_decay = 0.1});
//   TrainingStep step(precision, batch, token_loss(model, seed), {.clip = 1});
//   train(step, schedule, 1, 1000, {{.every = 10, .run = [](std::int64_t n, const StepOutcome& done) { ... }}});
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/training/precision.h"
#include "nn/training/schedule.h"
#include "nn/training/step.h"
#include "nn/transformer.h"

namespace whence {

class Communicator;

// Returns the batch of part 1, 2, ...: a pure function of the part.
using MakeBatch = std::function<TrainingBatch(std::int64_t part)>;

// Returns the loss of a transformer that predicts tokens: cross entropy of a batch's targets, i64 [b t], where -1 means
// no target. Dropout is a pure function of seed and part. REQUIRES: `model` outlives the result.
[[nodiscard]] LossOf token_loss(const Transformer& model, std::uint64_t seed);

// Returns why a graph would repeat random draws of this model: "dropout draws anew at each step". Empty if it would
// not.
[[nodiscard]] std::string not_recordable(const TransformerOptions& model);

// A loss that is not finite.
class FailedStep : public NotFinite {
  using NotFinite::NotFinite;
};

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
  ~TrainingStep();

  // Takes step 1, 2, ... NotFinite if its loss or a gradient is not finite, or f16's loss scale is at its minimum;
  // Error if it has no target. Nothing but that scale has changed then. A replayed step checks only its gradients
  // before it changes anything, and the loss afterwards. A step with an observer (a capture, a tape, an op clock,
  // CheckFinite) is not replayed. A CPU takes subnormal numbers for 0 in a step (tensor/subnormals.h).
  StepOutcome take(std::int64_t step, double learning_rate);

  // Stops recording: later steps run without a graph, and the graph's memory is freed. A step that cannot be recorded
  // does so itself: batches of other shapes, numbers read back, no memory for a graph.
  void stop_recording(const std::string& reason);
  bool recorded() const { return replay_ != nullptr; }
  const std::string& why_not_recorded() const { return why_not_recorded_; }  // that reason; empty: recording

 private:
  class Replay;

  std::int64_t first_part(std::int64_t step) const { return (step - 1) * options_.accumulate + 1; }
  std::optional<double> scale_of(std::int64_t step) const;
  StepOutcome run(std::int64_t step, double learning_rate);
  std::optional<StepOutcome> replayed(std::int64_t step, double learning_rate);

  MixedPrecision& precision_;
  MakeBatch batch_;
  LossOf loss_of_;
  StepOptions options_;
  Tensor shared_;                   // with ranks: every parameter's gradient, one after another
  std::unique_ptr<Replay> replay_;  // null: no recording
  std::string why_not_recorded_;
};

struct TrainingHook {
  std::int64_t every = 1;  // steps
  bool at_last = false;    // after the last step too
  std::function<void(std::int64_t step, const StepOutcome& outcome)> run = {};
};

// Takes steps `first` to `last`; stops early when `enough`, called before each step, returns true. Hooks run in order.
// Returns the number of the last step taken, first - 1 if none. Throws the errors of steps and hooks.
std::int64_t train(TrainingStep& training, const Schedule& schedule, std::int64_t first, std::int64_t last,
    const std::vector<TrainingHook>& hooks, const std::function<bool()>& enough = {});

}  // namespace whence
