// One step of training: forward, loss, backward, clipping and Adam, in any precision; on a GPU, where asked for,
// recorded as one graph.
#pragma once

#include <optional>
#include <vector>

#include "examples/app/training.h"
#include "nn/precision.h"
#include "tensor/recorded_step.h"

namespace whence {

struct StepOutcome {
  double loss = 0;           // mean over the step's targets
  double gradient_norm = 0;  // of that mean's gradients, before clipping
  std::int64_t tokens = 0;
  bool skipped =
      false;  // gradients were not finite, which f16's loss scale answers for: nothing was changed but the scale
};

class TrainingStep {
 public:
  // InputError when the job cannot be recorded and the options ask for it. REQUIRES: all three outlive this.
  TrainingStep(const TrainingJob& job, const TrainingOptions& options, MixedPrecision& precision);

  // Step 1, 2, ... Error when the loss or, without a loss scale, a gradient is not finite. Nothing was changed then; a
  // recorded step looks at its gradients alone before it changes anything, at the loss afterwards. OutOfMemory says
  // which batch would fit.
  StepOutcome take(std::int64_t step, double learning_rate);

 private:
  // A step's losses, each a sum over its targets, and what their gradients were multiplied by.
  struct Sums {
    std::vector<Tensor> losses;
    std::int64_t counted = 0, tokens = 0;
    double scale = 0;
  };

  StepOutcome at_once(std::int64_t step, double learning_rate);
  StepOutcome replayed(std::int64_t step, double learning_rate);
  std::vector<TrainingBatch> batches(std::int64_t step) const;
  void upload(const std::vector<TrainingBatch>& given, std::int64_t step);
  std::vector<Tensor> recorded_work();
  LossSum loss_of_part(std::int64_t part) const;
  double scale_of(std::int64_t counted_in_first_part) const;
  double mean_loss(const Sums& sums, std::int64_t step) const;
  // Of gradients that were looked at: does the loss scale take the blame? Error when it does not.
  bool skips(bool finite, std::int64_t step);
  std::string memory_advice(const OutOfMemory& problem) const;

  const TrainingJob& job_;
  const TrainingOptions& options_;
  MixedPrecision& precision_;
  std::vector<Module::Parameter> parameters_;
  // Of a recorded step: what it reads, at addresses that stay.
  std::vector<TrainingBatch> inputs_;
  Tensor seed_;
  std::optional<RecordedStep> work_;
};

}  // namespace whence
