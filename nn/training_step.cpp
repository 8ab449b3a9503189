#include "nn/training_step.h"

#include <cmath>
#include <optional>

#include "autograd/backward.h"
#include "tensor/error.h"
#include "tensor/raw.h"
#include "tensor/recorded_step.h"

namespace whence {

std::string not_recordable(const TransformerOptions& model) {
  if (model.dropout > 0 || model.pattern_dropout > 0 || model.hidden_dropout > 0)
    return "given with dropout, which a recorded step would drop the same way each time; dropout 0 required";
  for (const SchemeSpec& spec : parse_schemes(model.scheme)) {
    if (!spec.make({model.dim, model.heads, model.length})->claims().drawn_each_step) continue;
    return to_text("given with ", spec.text(), ", which draws positions at each step; a scheme that does not required");
  }
  return {};
}

// Everything between the upload of a step's batches and its new weights, as one graph. The
// memory that it reads stays put.
class TrainingStep::Replay {
 public:
  Replay(Adam& optimizer, const LossOf& loss_of)
      : device_(optimizer.parameters().at(0).tensor.device()),
        seed_(Tensor::scalar(
            1, optimizer.parameters()[0].tensor.dtype() == DType::f64 ? DType::f64 : DType::f32, device_)),
        work_(device_, [this, &optimizer, &loss_of] {
          optimizer.zero_gradients();
          std::vector<Tensor> losses;
          for (const TrainingBatch& batch : inputs_) {
            const Tensor loss = loss_of(batch, 1);  // no part's number is in it: whatever draws by it is not recordable
            backward(loss, seed_);
            losses.push_back(loss.detach());
          }
          optimizer.replayable_step();
          return losses;
        }) {}

  std::vector<Tensor> run(const std::vector<TrainingBatch>& given, double scale, std::int64_t step) {
    upload(given, step);
    raw::copy_into(raw::to_device(Tensor::scalar(scale, seed_.dtype()), device_), seed_);
    return work_.run();
  }

 private:
  void upload(const std::vector<TrainingBatch>& given, std::int64_t step) {
    if (inputs_.empty()) {
      inputs_ = given;
      for (TrainingBatch& batch : inputs_)
        for (Tensor& tensor : batch.tensors) tensor = raw::copy(raw::to_device(tensor, device_));
      return;
    }
    for (std::size_t part = 0; part < given.size(); ++part) {
      for (std::size_t k = 0; k < given[part].tensors.size(); ++k) {
        const Tensor &from = given[part].tensors[k], &to = inputs_[part].tensors[k];
        if (!(from.shape() == to.shape())) {
          throw InputError("recorded step: a batch of step ", step, " is ", from.shape(), ", those before were ",
              to.shape(), "; equal shapes required, as a graph keeps its own; do not record");
        }
        raw::copy_into(raw::to_device(from, device_), to);
      }
    }
  }

  Device device_;
  std::vector<TrainingBatch> inputs_;
  Tensor seed_;
  RecordedStep work_;
};

TrainingStep::TrainingStep(MixedPrecision& precision, MakeBatch batch, LossOf loss_of, const StepOptions& options)
    : precision_(precision), batch_(std::move(batch)), loss_of_(std::move(loss_of)), options_(options) {
  if (options.recorded) replay_ = std::make_unique<Replay>(precision.optimizer(), loss_of_);
}

TrainingStep::~TrainingStep() = default;

StepOutcome TrainingStep::take(std::int64_t step, double learning_rate) {
  try {
    return attempt(step, learning_rate);
  } catch (const OutOfMemory& problem) {
    precision_.optimizer().zero_gradients();
    throw OutOfMemory(to_text(problem.what(), memory_advice(problem)), problem.numbers);
  }
}

// A loss scale is that of a mean loss; the losses here are sums, and the mean's divisor is known when all parts are. A
// power of two near it does as well, and changes no digit.
double TrainingStep::scale_of(std::int64_t counted_in_first_part) const {
  if (!precision_.loss_scale()) return 1;
  const double targets = static_cast<double>(std::max<std::int64_t>(counted_in_first_part, 1) * options_.accumulate);
  return precision_.loss_scale()->value() * std::exp2(-std::ceil(std::log2(targets)));
}

namespace {

// Losses are read when everything is under way: until then the host only runs ahead of a GPU.
double mean_loss(const std::vector<Tensor>& losses, std::int64_t counted, std::int64_t step) {
  double sum = 0;
  for (const Tensor& loss : losses) {
    const double value = loss.item();
    if (!std::isfinite(value)) {
      throw FailedStep(to_text("training: the loss is ", value, " at step ", step,
          "; a finite loss required; lower the learning rate or the largest norm of gradients"));
    }
    sum += value;
  }
  return sum / static_cast<double>(counted);
}

void require_targets(std::int64_t counted, std::int64_t step) {
  if (counted == 0)
    throw Error("training: no target in step ", step, "; at least one required; use larger batches (--batch)");
}

}  // namespace

StepOutcome TrainingStep::attempt(std::int64_t step, double learning_rate) {
  Adam& optimizer = precision_.optimizer();
  std::optional<LossScale>& loss_scale = precision_.loss_scale();
  StepOutcome outcome;
  std::vector<TrainingBatch> given;  // of a recorded step
  std::vector<Tensor> losses;
  std::int64_t counted = 0;
  double scale = 0;
  if (!replay_) optimizer.zero_gradients();
  for (std::int64_t part = (step - 1) * options_.accumulate + 1; part <= step * options_.accumulate; ++part) {
    TrainingBatch batch = batch_(part);
    if (scale == 0) scale = scale_of(batch.counted);
    counted += batch.counted, outcome.tokens += batch.tokens;
    if (replay_) {
      given.push_back(std::move(batch));
      continue;
    }
    const Tensor loss = loss_of_(batch, part);
    backward(loss, scale == 1 ? Tensor() : Tensor::full({}, scale, loss.dtype(), loss.device()));
    losses.push_back(loss.detach());
  }
  // The gradients are those of the sum. Divided by all of the step's targets they are those of
  // the mean over one large batch.
  const double targets = static_cast<double>(counted);
  GradientNorm norm{};
  if (replay_) {
    require_targets(counted, step);
    optimizer.prepare_replay(learning_rate, options_.clip, scale * targets);
    losses = replay_->run(given, scale, step);
    outcome.loss = mean_loss(losses, counted, step);
    norm = optimizer.replayed_norm();
    outcome.gradient_norm = norm.value;
  } else {
    outcome.loss = mean_loss(losses, counted, step);
    require_targets(counted, step);
    const auto clipping = loss_scale ? try_clip_by_global_norm : clip_by_global_norm;
    norm = clipping(optimizer.parameters(), options_.clip * targets, scale, Site::current());
    outcome.gradient_norm = norm.value / targets;
  }
  if (loss_scale) loss_scale->update(norm.finite(), step);
  outcome.skipped = loss_scale && !norm.finite();
  if (outcome.skipped) return outcome;
  if (!norm.finite()) {
    throw FailedStep(to_text("training: the norm of the gradients is ", norm.value, " at step ", step,
        "; finite gradients required; lower the learning rate; a step that is not recorded names the parameter"));
  }
  if (replay_) return outcome;
  norm.scale /= targets;
  optimizer.step(learning_rate, norm);
  return outcome;
}

// The step's own tensors grow with the batch. When memory was out, at least `live + asked - lasting` bytes were wanted
// for all of its sequences, so that at most `fitting` of them go beside what lasts. The largest divisor of a step's
// sequences below that keeps its gradients as they were.
std::string TrainingStep::memory_advice(const OutOfMemory& problem) const {
  if (options_.sequences < 1) return {};
  std::size_t lasting = 0;
  for (const Adam::Moments& moments : precision_.optimizer().moments()) {
    const std::size_t numbers = static_cast<std::size_t>(moments.first.numel());
    lasting += numbers * (2 * size_of(moments.first.dtype()) + (moments.master.defined() ? size_of(DType::f32) : 0));
  }
  for (const Module::Parameter& parameter : precision_.optimizer().parameters())  // with its gradient
    lasting += 2 * static_cast<std::size_t>(parameter.tensor.numel()) * size_of(parameter.tensor.dtype());
  const OutOfMemory::Numbers& n = problem.numbers;
  const std::size_t room = n.live + n.free, wanted = n.live + n.asked;
  const std::size_t own = wanted > lasting ? wanted - lasting : 0;
  std::string text =
      to_text("; the step wanted at least ", bytes_text(own), " for ", options_.sequences, " sequences beside ",
          bytes_text(lasting), " of weights, moments and gradients, and there are ", bytes_text(room));
  const double each = static_cast<double>(own) / static_cast<double>(options_.sequences);
  const double left = static_cast<double>(room) - static_cast<double>(lasting);
  std::int64_t fitting = own > 0 && left > 0 ? static_cast<std::int64_t>(left / each) : 0;
  fitting = std::min(fitting, options_.sequences - 1);
  const std::int64_t all = options_.sequences * options_.accumulate;
  while (fitting > 1 && all % fitting) --fitting;
  if (fitting < 1) return text + ": not one sequence fits; a smaller model, shorter sequences, or executor strips";
  return text + to_text(": batch ", fitting, ", accumulate ", all / fitting, " makes the same steps in less");
}

}  // namespace whence
