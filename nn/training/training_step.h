// One step of training: forward, loss, backward, clipping and the optimiser, in any precision. On a GPU it can
// be recorded once and replayed; ranks can share it.
//   MixedPrecision precision(model, DType::f32, {.weight_decay = 0.1});
//   TrainingStep step(precision, batch, loss_of, {.clip = 1});
//   for (std::int64_t n = 1; n <= schedule_options.steps; ++n) std::cout << step.take(n, schedule(n)).loss << '\n';
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/training/precision.h"

namespace whence {

class Communicator;
struct TransformerOptions;

// The numbers of one part of a step, made on the CPU.
struct TrainingBatch {
  std::vector<Tensor> tensors = {};
  std::int64_t counted = 0;  // targets with a loss
  std::int64_t tokens = 0;   // seen, for the rate of progress
};

// Of part 1, 2, ...: a pure function of the part. Step n is made of parts (n - 1) accumulate + 1 ... n accumulate.
// Their gradients are summed by halves, ((1 + 2) + (3 + 4)) + ((5 + 6) + (7 + 8)), as far as their number can be
// halved; so ranks make the sums that one process makes.
using MakeBatch = std::function<TrainingBatch(std::int64_t part)>;
// The losses of a part's targets, summed and not averaged: a part with more targets then weighs more, as in one large
// batch. A scalar with a path to every parameter. The tensors are on the CPU or on the model's device.
using LossOf = std::function<Tensor(const TrainingBatch& batch, std::int64_t part)>;

struct StepOptions {
  std::int64_t accumulate = 1;  // parts whose gradients make one step, over all ranks
  double clip = 1;              // largest global norm of the gradients
  // On a GPU: one graph for all steps (RecordedStep), with the bits of steps that stand alone. `loss_of` draws nothing
  // anew at each step, and decides nothing by the numbers of a batch. Adam alone.
  bool recorded = false;
  // With whom the parts of a step are shared, each rank as many; null: nobody. Outlives the step. All ranks make the
  // same model from the same seed, and take the same steps; what comes out is the same on all, and the same for any
  // number.
  Communicator* ranks = nullptr;
};

// Returns what of this model draws anew at each step, so that a graph would repeat it: "dropout draws anew at each step".
// Empty where nothing does.
[[nodiscard]] std::string not_recordable(const TransformerOptions& model);

struct StepOutcome {
  double loss = 0;           // mean over the step's targets
  double gradient_norm = 0;  // of that mean's gradients, before clipping
  std::int64_t tokens = 0;
  // Gradients were not finite; f16's loss scale answers for that. Only the scale changed.
  bool skipped = false;
  double seconds = 0;  // that the step took
};

// A loss that is not finite.
class FailedStep : public NotFinite {
  using NotFinite::NotFinite;
};

class TrainingStep {
 public:
  // REQUIRES: `precision` and the model outlive this. InputError when recorded with SGD or ranks, or `accumulate` is no
  // multiple of the ranks.
  TrainingStep(MixedPrecision& precision, MakeBatch batch, LossOf loss_of, const StepOptions& options = {});
  ~TrainingStep();

  // Step 1, 2, ... NotFinite when its loss or a gradient is not finite, or f16's loss scale is at its least; Error when
  // it has no target. Nothing but that scale has changed then. A replayed step looks at its gradients alone before it
  // changes anything, at the loss afterwards. A step at which something looks (a capture, a tape, an op clock,
  // CheckFinite) is not replayed.
  StepOutcome take(std::int64_t step, double learning_rate);

  // Steps that were to be recorded stand alone from now on, and the graph's memory is free. A step does so itself where
  // it cannot be recorded: batches of other shapes, numbers read back, no memory for a graph.
  void stop_recording(const std::string& reason);
  bool recorded() const { return replay_ != nullptr; }
  const std::string& why_not_recorded() const { return why_not_recorded_; }  // that reason; empty: none so far

 private:
  class Replay;
  class Parts;

  StepOutcome run(std::int64_t step, double learning_rate);
  StepOutcome run_recorded(std::int64_t step, double learning_rate);
  void sum_gradients_over_ranks();

  MixedPrecision& precision_;
  MakeBatch batch_;
  LossOf loss_of_;
  StepOptions options_;
  std::unique_ptr<Replay> replay_;  // null: steps as they stand
  std::string why_not_recorded_;
  Tensor all_gradients_;  // of ranks: every parameter's, one after another
};

}  // namespace whence
