#include "nn/training/training_step.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>

#include "autograd/backward.h"
#include "autograd/node.h"
#include "autograd/recording.h"
#include "nn/transformer.h"
#include "tensor/device/device_runtime.h"
#include "tensor/device/recorded_step.h"
#include "tensor/error.h"
#include "tensor/ranks/collectives.h"
#include "tensor/ranks/communicator.h"
#include "tensor/raw.h"

namespace whence {

std::string not_recordable(const TransformerOptions& model) {
  if (model.dropout > 0 || model.pattern_dropout > 0 || model.hidden_dropout > 0)
    return "dropout draws anew at each step";
  for (const SchemeSpec& spec : parse_schemes(model.scheme)) {
    if (!spec.part().make({model.dim, model.heads, model.length})->claims().drawn_each_step) continue;
    return spec.text() + " draws positions at each step";
  }
  return {};
}

namespace {

// Leaves in every parameter's gradient the sum over parts [begin, end), as a tree, so that ranks can do its branches and
// come to the same bits: by halves while their number is even, and the odd number that is left in a row, as no rank
// splits it. As many sums wait for their other half as the tree is deep.
void sum_by_halves(Optimizer& optimizer, std::int64_t begin, std::int64_t end,
    const std::function<void(std::int64_t part)>& backward_of) {
  if ((end - begin) % 2 != 0) {
    optimizer.zero_gradients();
    for (std::int64_t part = begin; part < end; ++part) backward_of(part);
    return;
  }
  const std::int64_t middle = begin + (end - begin) / 2;
  sum_by_halves(optimizer, begin, middle, backward_of);
  const bool own = (middle - begin) % 2 == 0;  // a sum that was made here, where another may be added in place
  std::vector<Tensor> left;
  for (const Module::Parameter& parameter : optimizer.parameters())
    left.push_back(tracked(parameter.tensor) ? gradient(parameter.tensor) : Tensor());
  sum_by_halves(optimizer, middle, end, backward_of);
  for (std::size_t k = 0; k < left.size(); ++k) {
    const Tensor& parameter = optimizer.parameters()[k].tensor;
    const Tensor right = tracked(parameter) ? gradient(parameter) : Tensor();
    if (!left[k].defined() && !right.defined()) continue;
    const auto wide = [&](const Tensor& x) { return detail::in_dtype(x, compute_dtype(parameter.dtype())); };
    Tensor sum = left[k];
    if (!left[k].defined() || !right.defined())
      sum = raw::copy(wide(right.defined() ? right : left[k]));
    else if (own)
      raw::add_into(wide(right), sum);
    else
      sum = raw::add(wide(left[k]), wide(right));
    set_gradient(parameter, sum);
  }
}

}  // namespace

// Everything between the upload of a step's batches and its new weights, as one graph. The
// memory that it reads stays put.
class TrainingStep::Replay {
 public:
  Replay(Adam& adam, const LossOf& loss_of)
      : optimizer(adam),
        device_(optimizer.parameters().at(0).tensor.device()),
        seed_(Tensor::scalar(
            1, optimizer.parameters()[0].tensor.dtype() == DType::f64 ? DType::f64 : DType::f32, device_)),
        work_(device_, [this, &loss_of] {
          std::vector<Tensor> losses;
          sum_by_halves(optimizer, 0, std::ssize(inputs_), [&](std::int64_t part) {
            // No part's number is in it: whatever draws by it is not recordable.
            const Tensor loss = loss_of(inputs_[static_cast<std::size_t>(part)], 1);
            backward(loss, seed_);
            losses.push_back(loss.detach());
          });
          optimizer.replayable_step();
          return losses;
        }) {}

  Adam& optimizer;

  std::vector<Tensor> run(double scale) {
    raw::copy_into(raw::to_device(Tensor::scalar(scale, seed_.dtype()), device_), seed_);
    return work_.run();
  }

  // Records this step where it is the second. What throws here has changed no weight.
  void prepare(const std::vector<TrainingBatch>& given) {
    upload(given);
    if (!work_.recorded()) optimizer.zero_gradients();  // or the graph's memory would be kept beside theirs
    work_.record_if_due();
  }

 private:
  void upload(const std::vector<TrainingBatch>& given) {
    if (inputs_.empty()) {
      inputs_ = given;
      for (TrainingBatch& batch : inputs_)
        for (Tensor& tensor : batch.tensors) tensor = raw::copy(raw::to_device(tensor, device_));
      return;
    }
    for (std::size_t part = 0; part < given.size(); ++part) {
      for (std::size_t k = 0; k < given[part].tensors.size(); ++k) {
        const Tensor &from = given[part].tensors[k], &to = inputs_[part].tensors[k];
        if (!(from.shape() == to.shape()))
          throw Error(to_text("a batch is ", from.shape(), ", those before were ", to.shape()));
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
  if (options.recorded) {
    Adam* const adam = dynamic_cast<Adam*>(&precision.optimizer());
    if (!adam) throw InputError("recorded step: SGD given; Adam required, whose rate a graph reads anew at each step");
    replay_ = std::make_unique<Replay>(*adam, loss_of_);
  }
  if (!options.ranks) return;
  if (options.recorded)
    throw InputError(
        "recorded step: ", options.ranks->size(), " ranks given; one required, as a graph does not talk to others");
  if (options.accumulate % options.ranks->size() != 0)
    throw InputError("accumulate: ", options.accumulate, " parts of a step given to ", options.ranks->size(),
        " ranks; a multiple of the ranks required");
}

TrainingStep::~TrainingStep() = default;

void TrainingStep::stop_recording(const std::string& reason) {
  replay_.reset();
  why_not_recorded_ = reason;
}

namespace {

// A graph goes by no probe and by no clock.
bool is_watched() { return detail::active_capture || detail::tape || detail::op_clock || detail::check_finite; }

// What is said of a part: to the step, and to other ranks. Whole numbers in a double are exact.
struct PartFacts {
  double loss, counted, tokens;
};

// Of all parts in their order, those of other ranks too.
std::vector<PartFacts> facts_of_all(Communicator* ranks, const std::vector<PartFacts>& own) {
  if (!ranks) return own;
  std::vector<PartFacts> all(own.size() * static_cast<std::size_t>(ranks->size()));
  const std::vector<std::byte> bytes = gather_over_ranks(*ranks, std::as_bytes(std::span(own)));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

// Sums over all parts of a step.
struct StepFacts {
  double loss = 0, targets = 0;
  std::int64_t tokens = 0;
};

StepFacts sum_of(const std::vector<PartFacts>& parts, std::int64_t step) {
  StepFacts all;
  for (const PartFacts& part : parts) {
    if (!std::isfinite(part.loss)) {
      throw FailedStep(to_text("training: the loss is ", part.loss, " at step ", step,
          "; a finite loss required; lower the learning rate or the largest norm of gradients"));
    }
    all.loss += part.loss, all.targets += part.counted, all.tokens += static_cast<std::int64_t>(part.tokens);
  }
  if (all.targets == 0)
    throw Error("training: no target in step ", step, "; at least one required; use larger batches");
  return all;
}

}  // namespace

// The parts of one step that this rank does, and what is known of them so far.
class TrainingStep::Parts {
 public:
  Parts(const TrainingStep& training, std::int64_t step) : training_(training), step_(step) {
    const StepOptions& options = training.options_;
    const std::int64_t first = (step - 1) * options.accumulate + 1;  // of all ranks'
    const std::int64_t own = options.accumulate / (options.ranks ? options.ranks->size() : 1);
    begin_ = first + (options.ranks ? options.ranks->rank() * own : 0), end_ = begin_ + own;
    if (begin_ != first && training.precision_.loss_scale()) scale_ = scale_of(training.batch_(first).counted);
  }

  std::int64_t begin() const { return begin_; }
  std::int64_t end() const { return end_; }
  double scale() const { return scale_; }  // of the losses; known when a batch was made

  TrainingBatch batch(std::int64_t part) {
    TrainingBatch batch = training_.batch_(part);
    if (scale_ == 0) scale_ = scale_of(batch.counted);
    facts_.push_back({0, static_cast<double>(batch.counted), static_cast<double>(batch.tokens)});
    return batch;
  }

  // Of all ranks. Losses are read when everything is under way: until then the host only runs ahead of a GPU.
  StepFacts sum(const std::vector<Tensor>& losses) {
    for (std::size_t k = 0; k < losses.size(); ++k) facts_[k].loss = losses[k].item();
    return sum_of(facts_of_all(training_.options_.ranks, facts_), step_);
  }

 private:
  // A loss scale is that of a mean loss; the losses here are sums, and the mean's divisor is known when all parts are. A
  // power of two near it does as well, and changes no digit.
  double scale_of(std::int64_t counted_in_first_part) const {
    const std::optional<LossScale>& loss_scale = training_.precision_.loss_scale();
    if (!loss_scale) return 1;
    const double targets =
        static_cast<double>(std::max<std::int64_t>(counted_in_first_part, 1) * training_.options_.accumulate);
    return loss_scale->value() * std::exp2(-std::ceil(std::log2(targets)));
  }

  const TrainingStep& training_;
  std::int64_t step_, begin_ = 0, end_ = 0;
  double scale_ = 0;
  std::vector<PartFacts> facts_;  // of the batches made so far
};

StepOutcome TrainingStep::take(std::int64_t step, double learning_rate) {
  const auto started = std::chrono::steady_clock::now();
  try {
    StepOutcome outcome = replay_ && !is_watched() ? run_recorded(step, learning_rate) : run(step, learning_rate);
    outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    return outcome;
  } catch (const OutOfMemory&) {
    precision_.optimizer().zero_gradients();
    throw;
  }
}

// Every rank's sum is a branch of the tree; what is left is the tree over ranks.
void TrainingStep::sum_gradients_over_ranks() {
  const auto& parameters = precision_.optimizer().parameters();
  // Each begins on a cache line.
  const auto room_of = [](const Tensor& x) { return (x.numel() + 63) / 64 * 64; };
  index_t numbers = 0;
  for (const Module::Parameter& parameter : parameters) {
    if (!tracked(parameter.tensor)) continue;
    numbers += room_of(parameter.tensor);
    if (!gradient(parameter.tensor).defined())
      throw Error("training: no path from the loss to parameter ", parameter.path,
          "; a gradient for every parameter required, as ranks share them");
  }
  const DType dtype = compute_dtype(parameters.at(0).tensor.dtype());
  if (!all_gradients_.defined()) all_gradients_ = Tensor::zeros({numbers}, dtype, parameters[0].tensor.device());
  std::vector<Tensor> places;
  for (index_t first = 0; const Module::Parameter& parameter : parameters) {
    if (!tracked(parameter.tensor)) continue;
    const index_t own = parameter.tensor.numel();
    places.push_back(raw::reshape(raw::slice(all_gradients_, 0, first, first + own), parameter.tensor.shape()));
    raw::copy_into(detail::in_dtype(gradient(parameter.tensor), dtype), places.back());
    first += room_of(parameter.tensor);
  }
  sum_over_ranks(*options_.ranks, all_gradients_);
  for (std::size_t k = 0; const Module::Parameter& parameter : parameters)
    if (tracked(parameter.tensor)) set_gradient(parameter.tensor, places[k++]);
}

// The gradients are those of the sum. Divided by all of the step's targets they are those of the mean over one large
// batch.
StepOutcome TrainingStep::run(std::int64_t step, double learning_rate) {
  Parts parts(*this, step);
  Optimizer& optimizer = precision_.optimizer();
  std::vector<Tensor> losses;
  sum_by_halves(optimizer, parts.begin(), parts.end(), [&](std::int64_t part) {
    const TrainingBatch batch = parts.batch(part);
    const Tensor loss = loss_of_(batch, part);
    backward(loss, parts.scale() == 1 ? Tensor() : Tensor::full({}, parts.scale(), loss.dtype(), loss.device()));
    losses.push_back(loss.detach());
  });
  const StepFacts all = parts.sum(losses);
  if (options_.ranks) sum_gradients_over_ranks();
  const std::optional<double> loss_scale = precision_.loss_scale() ? std::optional(parts.scale()) : std::nullopt;
  GradientNorm norm = clip_by_global_norm(optimizer.parameters(), options_.clip * all.targets, loss_scale);
  if (precision_.loss_scale()) precision_.loss_scale()->update(norm.finite(), step);
  const bool skipped = !norm.finite();  // or an error would have named the gradient
  const StepOutcome outcome{all.loss / all.targets, norm.value / all.targets, all.tokens, skipped, 0};
  if (skipped) return outcome;
  norm.scale /= all.targets;
  optimizer.step(learning_rate, norm);
  return outcome;
}

StepOutcome TrainingStep::run_recorded(std::int64_t step, double learning_rate) {
  Parts parts(*this, step);
  Adam& optimizer = replay_->optimizer;
  std::vector<TrainingBatch> given;
  for (std::int64_t part = parts.begin(); part < parts.end(); ++part) given.push_back(parts.batch(part));
  const double targets = parts.sum({}).targets;
  synchronise(optimizer.parameters().at(0).tensor.device());  // errors of what ran before are no reason not to record
  try {
    replay_->prepare(given);
  } catch (const Error& error) {
    stop_recording(error.what());
    return run(step, learning_rate);
  }
  optimizer.prepare_replay(learning_rate, options_.clip * targets, parts.scale(), targets);
  const StepFacts all = parts.sum(replay_->run(parts.scale()));
  const GradientNorm norm = optimizer.replayed_norm();
  // The step alone, which names the parameter: the replayed one has changed nothing.
  if (!norm.finite() && !precision_.loss_scale()) return run(step, learning_rate);
  if (precision_.loss_scale()) precision_.loss_scale()->update(norm.finite(), step);
  return {all.loss / targets, norm.value / targets, all.tokens, !norm.finite(), 0};
}

}  // namespace whence
