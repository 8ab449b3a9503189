#include "nn/training/training_step.h"

#include <chrono>

#include "autograd/observer.h"
#include "tensor/device/device_runtime.h"
#include "tensor/ranks/ranks.h"

namespace whence {

TrainingStep::TrainingStep(MixedPrecision& precision, MakeBatch batch, LossOf loss_of, const StepOptions& options)
    : precision_(precision), batch_(std::move(batch)), loss_of_(std::move(loss_of)), options_(options) {
  if (precision.optimizer().parameters().empty())
    throw InputError("training: every parameter is frozen; one that trains required");
  if (options.recorded) {
    Adam* const adam = dynamic_cast<Adam*>(&precision.optimizer());
    if (!adam) throw InputError("recorded step: SGD given; Adam required, whose rate a graph reads anew at each step");
    replay_.emplace(*adam, loss_of_);
  }
  if (!options.ranks) return;
  if (options.recorded)
    throw InputError("recorded step: ", options.ranks->size(),
        " ranks given; one required, because a graph exchanges nothing with others");
  if (options.accumulate % options.ranks->size() != 0)
    throw InputError("accumulate: ", options.accumulate, " parts of a step given to ", options.ranks->size(),
        " ranks; a multiple of the ranks required");
  shared_.emplace(*options.ranks);
}

void TrainingStep::stop_recording(const std::string& reason) {
  replay_.reset();
  why_not_recorded_ = reason;
}

// Observers see nothing of a replayed graph.
static bool is_watched() { return detail::observer != nullptr; }

StepOutcome TrainingStep::take(std::int64_t step, double learning_rate) {
  const auto started = std::chrono::steady_clock::now();
  try {
    std::optional<StepOutcome> outcome;
    if (replay_ && !is_watched()) outcome = replayed(step, learning_rate);
    if (!outcome) outcome = run(step, learning_rate);
    if (precision_.loss_scale()) precision_.loss_scale()->update(!outcome->skipped, step);
    outcome->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    return *outcome;
  } catch (const OutOfMemory&) {
    precision_.optimizer().zero_gradients();
    throw;
  }
}

// The step's number of targets is not known yet. It is estimated from the first part, equally on all ranks.
std::optional<double> TrainingStep::scale_of(std::int64_t step) const {
  if (!precision_.loss_scale()) return {};
  const std::int64_t counted = std::max<std::int64_t>(batch_(first_part(step)).counted, 1);
  return precision_.loss_scale()->for_sum_of(static_cast<double>(counted * options_.accumulate));
}

StepOutcome TrainingStep::run(std::int64_t step, double learning_rate) {
  const std::int64_t own = options_.accumulate / (options_.ranks ? options_.ranks->size() : 1);
  const std::int64_t begin = first_part(step) + (options_.ranks ? options_.ranks->rank() * own : 0);
  Optimizer& optimizer = precision_.optimizer();
  const auto forward_and_backward = [&] {
    const auto parts = accumulate(optimizer, batch_, loss_of_, begin, begin + own, scale_of(step));
    return shared_ ? shared_->sum(optimizer, parts, step) : total(parts, step);
  };
  return whence::step(optimizer, forward_and_backward, learning_rate, options_.clip);
}

// Returns nothing if the step must be taken without a graph.
std::optional<StepOutcome> TrainingStep::replayed(std::int64_t step, double learning_rate) {
  std::vector<TrainingBatch> batches;
  for (std::int64_t part = 0; part < options_.accumulate; ++part) batches.push_back(batch_(first_part(step) + part));
  synchronise(precision_.optimizer().parameters().at(0).tensor.device());  // earlier errors do not stop recording
  try {
    replay_->prepare(batches);
  } catch (const Error& error) {
    stop_recording(error.what());
    return {};
  }
  const StepOutcome outcome = replay_->step(step, learning_rate, options_.clip, scale_of(step));
  if (outcome.skipped && !precision_.loss_scale()) return {};  // without a graph the error names the gradient
  return outcome;
}

}  // namespace whence
