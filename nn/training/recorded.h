// An accumulated step as one graph: everything between the upload of its batches and its new weights. The addresses
// that the graph reads do not change.
#pragma once

#include <string>

#include "nn/training/accumulated.h"
#include "nn/training/replayed_adam.h"
#include "tensor/device/recorded_step.h"

namespace whence {

struct TransformerOptions;

// Returns why a graph would repeat random draws of this model: "dropout draws anew at each step". Empty if it would
// not.
[[nodiscard]] std::string not_recordable(const TransformerOptions& model);

class Replay {
 public:
  // REQUIRES: `adam` and `loss_of` outlive this.
  Replay(Adam& adam, const LossOf& loss_of);
  Replay(const Replay&) = delete;  // the graph contains the address of this object
  Replay& operator=(const Replay&) = delete;

  // Uploads the batches of a step, and records the second step. An Error here has changed no weight.
  void prepare(const std::vector<TrainingBatch>& batches);
  // Takes step `n` with these batches; skipped if gradients are not finite. Throws the errors of total(); for a loss
  // that is not finite, only after the step.
  StepOutcome step(std::int64_t n, double learning_rate, double clip, std::optional<double> scale);

 private:
  std::vector<Tensor> work();
  void upload(const std::vector<TrainingBatch>& batches);

  ReplayedAdam replayed_;
  Adam& adam_;
  const LossOf& loss_of_;
  Device device_;
  std::vector<TrainingBatch> inputs_;  // tensors on the device; counts of the batches uploaded last
  Tensor seed_;
  RecordedStep recorded_;
};

}  // namespace whence
