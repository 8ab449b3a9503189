// Steps as they stand, and recorded ones.
#include "examples/app/training_step.h"

#include <cmath>

#include "autograd/backward.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {
namespace {

[[noreturn]] void stop_at_bad_loss(double loss, std::int64_t step, const TrainingOptions& options) {
  const char* const f16 = options.precision == DType::f16
                              ? "; in f16 numbers above 65504 overflow: --precision bf16 has no such limit"
                              : "";
  throw Error(to_text("training: the loss is ", loss, " at step ", step,
      "; a finite loss required; lower --lr or --clip; --check-finite names the first op that went wrong", f16,
      options.folder.empty() ? "" : "; the last checkpoint is from before it"));
}

[[noreturn]] void stop_without_targets(std::int64_t step) {
  throw Error(to_text("training: no target in step ", step, "; at least one required; use larger batches"));
}

void require_recordable(const TrainingJob& job, const TrainingOptions& options) {
  if (options.device.is_cpu()) {
    throw InputError("--cuda-graph: given without a GPU; a device that records launches required; leave it out");
  }
  if (!job.not_recordable.empty()) throw InputError(to_text("--cuda-graph: ", job.not_recordable, "; leave it out"));
  if (job.loss)
    throw InputError(
        "--cuda-graph: given for a loss that makes its own batches; a job in two halves required; leave it out");
  if (options.check_finite)
    throw InputError("--cuda-graph: given with --check-finite, which reads every result; leave one of them out");
}

}  // namespace

std::string not_recordable(const TransformerOptions& model) {
  if (model.dropout > 0 || model.pattern_dropout > 0 || model.hidden_dropout > 0) {
    return "given with dropout, which a recorded step would drop the same way each time; dropout 0 required";
  }
  for (const SchemeSpec& spec : parse_schemes(model.scheme)) {
    if (!spec.make({model.dim, model.heads, model.length})->claims().drawn_each_step) continue;
    return to_text("given with ", spec.text(), ", which draws positions at each step; a scheme that does not required");
  }
  return {};
}

TrainingStep::TrainingStep(const TrainingJob& job, const TrainingOptions& options, MixedPrecision& precision)
    : job_(job), options_(options), precision_(precision), parameters_(job.model->parameters()) {
  if (!options.cuda_graph) return;
  require_recordable(job, options);
  seed_ = Tensor::scalar(1, DType::f32, options.device);
  work_.emplace(options.device, [this] { return recorded_work(); });
}

StepOutcome TrainingStep::take(std::int64_t step, double learning_rate) {
  try {
    return work_ ? replayed(step, learning_rate) : at_once(step, learning_rate);
  } catch (const OutOfMemory& problem) {
    precision_.optimizer().zero_gradients();
    throw OutOfMemory(to_text(problem.what(), memory_advice(problem)), problem.numbers);
  }
}

LossSum TrainingStep::loss_of_part(std::int64_t part) const {
  if (job_.loss) return job_.loss(part);
  const TrainingBatch batch = job_.batch(part);
  return {job_.loss_of(batch, part), batch.counted, batch.tokens};
}

// A loss scale is that of a mean loss; the losses here are sums, and the mean's divisor is known when all parts are. A
// power of two near it does as well, and changes no digit.
double TrainingStep::scale_of(std::int64_t counted_in_first_part) const {
  if (!precision_.loss_scale()) return 1;
  const double targets = static_cast<double>(std::max<std::int64_t>(counted_in_first_part, 1) * options_.accumulate);
  return precision_.loss_scale()->value() * std::exp2(-std::ceil(std::log2(targets)));
}

double TrainingStep::mean_loss(const Sums& sums, std::int64_t step) const {
  double sum = 0;
  for (const Tensor& loss : sums.losses) {
    const double value = loss.item();
    if (!std::isfinite(value)) stop_at_bad_loss(value, step, options_);
    sum += value;
  }
  if (sums.counted == 0) stop_without_targets(step);
  return sum / static_cast<double>(sums.counted);
}

bool TrainingStep::skips(bool finite, std::int64_t step) {
  if (!precision_.loss_scale()) return false;
  precision_.loss_scale()->update(finite, step);
  return !finite;
}

// Losses are read when everything is under way: until then the host only runs ahead of a GPU.
StepOutcome TrainingStep::at_once(std::int64_t step, double learning_rate) {
  Adam& optimizer = precision_.optimizer();
  optimizer.zero_gradients();
  Sums sums;
  for (std::int64_t part = (step - 1) * options_.accumulate + 1; part <= step * options_.accumulate; ++part) {
    const LossSum loss = loss_of_part(part);
    if (sums.losses.empty()) sums.scale = scale_of(loss.counted);
    backward(loss.sum, sums.scale == 1 ? Tensor() : Tensor::full({}, sums.scale, loss.sum.dtype(), loss.sum.device()));
    sums.losses.push_back(loss.sum.detach());
    sums.counted += loss.counted, sums.tokens += loss.tokens;
  }
  StepOutcome outcome{.loss = mean_loss(sums, step), .tokens = sums.tokens};
  // The gradients are those of the sum: dividing by all of the step's targets makes them those of the mean over one
  // large batch.
  const double targets = static_cast<double>(sums.counted), limit = options_.clip * targets;
  const bool scaled = precision_.loss_scale().has_value();
  GradientNorm norm = scaled ? try_clip_by_global_norm(parameters_, limit, sums.scale)
                             : clip_by_global_norm(parameters_, limit, sums.scale);
  outcome.gradient_norm = norm.value / targets;
  outcome.skipped = skips(norm.finite(), step);
  if (outcome.skipped) return outcome;
  norm.scale /= targets;
  optimizer.step(learning_rate, norm);
  return outcome;
}

std::vector<TrainingBatch> TrainingStep::batches(std::int64_t step) const {
  std::vector<TrainingBatch> made;
  for (std::int64_t part = (step - 1) * options_.accumulate + 1; part <= step * options_.accumulate; ++part) {
    made.push_back(job_.batch(part));
  }
  return made;
}

void TrainingStep::upload(const std::vector<TrainingBatch>& given, std::int64_t step) {
  if (inputs_.empty()) {
    inputs_ = given;
    for (TrainingBatch& batch : inputs_) {
      for (Tensor& tensor : batch.tensors) tensor = raw::to_device(tensor, options_.device);
    }
    return;
  }
  for (std::size_t part = 0; part < given.size(); ++part) {
    for (std::size_t k = 0; k < given[part].tensors.size(); ++k) {
      const Tensor &from = given[part].tensors[k], &to = inputs_[part].tensors[k];
      if (!(from.shape() == to.shape())) {
        throw InputError(to_text("--cuda-graph: a batch of step ", step, " is ", from.shape(), ", those before were ",
            to.shape(), "; equal shapes required, as a graph keeps its own; leave it out"));
      }
      raw::copy_into(raw::to_device(from, options_.device), to);
    }
  }
}

// What is recorded: everything between the upload of a batch and the new weights.
std::vector<Tensor> TrainingStep::recorded_work() {
  precision_.optimizer().zero_gradients();
  std::vector<Tensor> losses;
  for (const TrainingBatch& batch : inputs_) {
    const Tensor loss = job_.loss_of(batch, 1);  // no part's number is in it: whatever draws by it was refused
    backward(loss, seed_);
    losses.push_back(loss.detach());
  }
  precision_.optimizer().replayable_step();
  return losses;
}

StepOutcome TrainingStep::replayed(std::int64_t step, double learning_rate) {
  const std::vector<TrainingBatch> given = batches(step);
  Sums sums{.losses = {}, .scale = scale_of(given[0].counted)};
  for (const TrainingBatch& batch : given) sums.counted += batch.counted, sums.tokens += batch.tokens;
  if (sums.counted == 0) stop_without_targets(step);
  upload(given, step);
  raw::copy_into(raw::to_device(Tensor::scalar(sums.scale), options_.device), seed_);
  Adam& optimizer = precision_.optimizer();
  optimizer.prepare_replay(learning_rate, options_.clip, sums.scale * static_cast<double>(sums.counted));
  sums.losses = work_->run();
  StepOutcome outcome{.loss = mean_loss(sums, step), .tokens = sums.tokens};
  const GradientNorm norm = optimizer.replayed_norm();
  outcome.gradient_norm = norm.value;
  outcome.skipped = skips(norm.finite(), step);
  if (!norm.finite() && !outcome.skipped) {
    throw Error(to_text("training: the norm of the gradients is ", norm.value, " at step ", step,
        "; finite gradients required; lower --lr; without --cuda-graph the parameter is named"));
  }
  return outcome;
}

// The step's own tensors grow with the batch, and when memory was out at least `live + asked - lasting` bytes were
// wanted for all of its sequences: so many of them as fit beside what lasts are the most that can be, and of the
// divisors of a step the largest below that is what keeps its gradients as they were.
std::string TrainingStep::memory_advice(const OutOfMemory& problem) const {
  if (job_.sequences < 1) return {};
  std::size_t lasting = 0;
  for (const Adam::Moments& moments : precision_.optimizer().moments()) {
    const std::size_t numbers = static_cast<std::size_t>(moments.first.numel());
    lasting += numbers * (2 * size_of(moments.first.dtype()) + (moments.master.defined() ? size_of(DType::f32) : 0));
  }
  for (const Module::Parameter& parameter : parameters_) {
    lasting += 2 * static_cast<std::size_t>(parameter.tensor.numel()) *
               size_of(parameter.tensor.dtype());  // with its gradient
  }
  const OutOfMemory::Numbers& n = problem.numbers;
  const std::size_t room = n.live + n.free, wanted = n.live + n.asked;
  const std::size_t own = wanted > lasting ? wanted - lasting : 0;
  std::string text =
      to_text("; the step wanted at least ", bytes_text(own), " for ", job_.sequences, " sequences beside ",
          bytes_text(lasting), " of weights, moments and gradients, and there are ", bytes_text(room));
  const double each = static_cast<double>(own) / static_cast<double>(job_.sequences);
  const double left = static_cast<double>(room) - static_cast<double>(lasting);
  std::int64_t fitting = own > 0 && left > 0 ? static_cast<std::int64_t>(left / each) : 0;
  fitting = std::min(fitting, job_.sequences - 1);
  const std::int64_t all = job_.sequences * options_.accumulate;
  while (fitting > 1 && all % fitting) --fitting;
  if (fitting < 1) return text + ": not one sequence fits; a smaller model, a smaller --length, or --executor strips";
  return text + to_text(": --batch ", fitting, " --accumulate ", all / fitting, " makes the same steps in less");
}

}  // namespace whence
