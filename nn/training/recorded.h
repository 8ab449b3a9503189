// An accumulated step as one graph: everything between the upload of its batches and its new weights. The memory that
// the graph reads stays put.
#pragma once

#include <string>

#include "nn/training/accumulated.h"
#include "nn/training/replayed_adam.h"
#include "tensor/device/recorded_step.h"

namespace whence {

struct TransformerOptions;

// Returns what of this model draws anew at each step, so that a graph would repeat it: "dropout draws anew at each step".
// Empty where nothing does.
[[nodiscard]] std::string not_recordable(const TransformerOptions& model);

class Replay {
 public:
  // REQUIRES: `adam` and `loss_of` outlive this.
  Replay(Adam& adam, const LossOf& loss_of);
  Replay(const Replay&) = delete;  // the graph's work knows where it is
  Replay& operator=(const Replay&) = delete;

  // Uploads the batches of a step, and records it where it is the second. What throws here has changed no weight.
  void prepare(const std::vector<TrainingBatch>& batches);
  // Takes step `n` with these batches; skipped where gradients are not finite. Throws what total() does: for a loss that
  // is not finite only when the step is done.
  StepOutcome step(std::int64_t n, double learning_rate, double clip, std::optional<double> scale);

 private:
  std::vector<Tensor> work();
  void upload(const std::vector<TrainingBatch>& batches);

  ReplayedAdam replayed_;
  Adam& adam_;
  const LossOf& loss_of_;
  Device device_;
  std::vector<TrainingBatch> inputs_;  // tensors on the device, numbers of the batches that were uploaded last
  Tensor seed_;
  RecordedStep recorded_;
};

}  // namespace whence
