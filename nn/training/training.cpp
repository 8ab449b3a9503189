// The loop, then what a step of it is made of: several batches, ranks, a graph. The innermost is step.h.
#include "nn/training/training.h"

#include <chrono>
#include <cmath>

#include "autograd/graph.h"
#include "autograd/observer.h"
#include "autograd/ops.h"
#include "tensor/device/device_runtime.h"
#include "tensor/ranks/ranks.h"
#include "tensor/raw.h"
#include "tensor/subnormals.h"

namespace whence {

std::int64_t train(TrainingStep& training, const Schedule& schedule, std::int64_t first, std::int64_t last,
    const std::vector<TrainingHook>& hooks, const std::function<bool()>& enough) {
  std::int64_t step = first;
  for (; step <= last && !(enough && enough()); ++step) {
    const StepOutcome outcome = training.take(step, schedule(step));  // forward, backward, clipping, Adam
    for (const TrainingHook& hook : hooks)
      if (step % hook.every == 0 || (hook.at_last && step == last)) hook.run(step, outcome);
  }
  return step - 1;
}

LossOf token_loss(const Transformer& model, std::uint64_t seed) {
  return [&model, seed](const TrainingBatch& batch, std::int64_t part) {
    const Pass pass{.training = true, .seed = seed, .step = static_cast<std::uint64_t>(part)};
    return cross_entropy_sum(model(batch.tensors[0], pass), batch.tensors[1]);
  };
}

namespace {

// ---- Several batches, the parts of a step. Step n is made of parts (n - 1) P + 1 ... n P. Their gradients are summed
// by halves, ((1 + 2) + (3 + 4)) + ((5 + 6) + (7 + 8)), as long as the number can be halved. So ranks make the same
// sums as one process.

Tensor gradient_held(const Module::Parameter& parameter) {
  return trained(parameter) ? detail::gradient_as_held(parameter.tensor) : Tensor();
}

// Sets every parameter's gradient to the sum over parts [begin, end). `add` adds the gradients of one part. An odd number
// of parts is summed in order, because ranks do not split it further. The number of waiting sums is the depth of the tree.
void sum_by_halves(
    Optimizer& optimizer, std::int64_t begin, std::int64_t end, const std::function<void(std::int64_t part)>& add) {
  if ((end - begin) % 2 != 0) {
    optimizer.zero_gradients();
    for (std::int64_t part = begin; part < end; ++part) add(part);
    return;
  }
  const std::int64_t middle = begin + (end - begin) / 2;
  sum_by_halves(optimizer, begin, middle, add);
  const bool own = (middle - begin) % 2 == 0;  // a sum made here: another may be added in place
  std::vector<Tensor> left;
  for (const Module::Parameter& parameter : optimizer.parameters()) left.push_back(gradient_held(parameter));
  sum_by_halves(optimizer, middle, end, add);
  for (std::size_t k = 0; k < left.size(); ++k) {
    const Module::Parameter& parameter = optimizer.parameters()[k];
    const Tensor right = gradient_held(parameter);
    if (!left[k].defined() && !right.defined()) continue;
    const auto wide = [&](const Tensor& x) { return detail::in_dtype(x, compute_dtype(parameter.tensor.dtype())); };
    Tensor sum = left[k];
    if (!left[k].defined() || !right.defined())
      sum = raw::copy(wide(right.defined() ? right : left[k]));
    else if (own)
      raw::add_into(wide(right), sum);
    else
      sum = raw::add(wide(left[k]), wide(right));
    set_gradient(parameter.tensor, sum);
  }
}

// Adds up the parts of step `n`. FailedStep for a loss that is not finite, Error if there is no target.
LossSum total(const std::vector<LossSum>& parts, std::int64_t n) {
  LossSum all{.scale = parts.at(0).scale};
  for (const LossSum& part : parts) {
    if (!std::isfinite(part.loss))
      throw FailedStep(to_text("training: the loss is ", part.loss, " at step ", n,
          "; a finite loss required; lower the learning rate or the largest norm of gradients"));
    all.loss += part.loss, all.targets += part.targets, all.tokens += part.tokens;
  }
  if (all.targets == 0) throw Error("training: no target in step ", n, "; at least one required; use larger batches");
  return all;
}

LossSum counts_of(const TrainingBatch& batch, std::optional<double> scale) {
  return {0, static_cast<double>(batch.counted), static_cast<double>(batch.tokens), scale};
}

// ---- Ranks. Each computes the same number of parts, a branch of the tree above; the rest of the tree is summed over
// ranks. All ranks get the same bits, for any number of ranks.

// Returns all ranks' parts in order.
std::vector<LossSum> gathered(Communicator& ranks, const std::vector<LossSum>& own) {
  std::vector<double> numbers;
  for (const LossSum& part : own) numbers.insert(numbers.end(), {part.loss, part.targets, part.tokens});
  numbers = gather_over_ranks(ranks, numbers);
  std::vector<LossSum> all;
  for (auto part = numbers.begin(); part != numbers.end(); part += 3)
    all.push_back({part[0], part[1], part[2], own.at(0).scale});
  return all;
}

// Sets every parameter's gradient to the sum over all ranks, in `room`, which is made once.
void sum_gradients(Communicator& ranks, const Optimizer& optimizer, Tensor& room) {
  const auto room_of = [](const Tensor& x) { return (x.numel() + 63) / 64 * 64; };  // begins on a cache line
  index_t numbers = 0;
  std::vector<Tensor> weights;
  for (const Module::Parameter& parameter : optimizer.parameters()) {
    if (!trained(parameter)) continue;
    weights.push_back(parameter.tensor);
    numbers += room_of(parameter.tensor);
    if (!gradient_held(parameter).defined())
      throw Error("training: no path from the loss to parameter ", parameter.path,
          "; a gradient for every parameter required, as ranks share them");
  }
  const DType dtype = compute_dtype(weights.at(0).dtype());
  if (!room.defined()) room = Tensor::zeros({numbers}, dtype, weights[0].device());
  std::vector<Tensor> places;
  for (index_t first = 0; const Tensor& weight : weights) {
    places.push_back(raw::reshape(raw::slice(room, 0, first, first + weight.numel()), weight.shape()));
    raw::copy_into(detail::in_dtype(detail::gradient_as_held(weight), dtype), places.back());
    first += room_of(weight);
  }
  sum_over_ranks(ranks, room);
  for (std::size_t k = 0; k < weights.size(); ++k) set_gradient(weights[k], places[k]);
}

}  // namespace

// ---- A graph: everything between the upload of a step's batches and its new weights. The addresses that it reads do not
// change.

std::string not_recordable(const TransformerOptions& model) {
  if (model.dropout > 0 || model.pattern_dropout > 0 || model.hidden_dropout > 0)
    return "dropout draws anew at each step";
  for (const SchemeSpec& spec : parse_schemes(model.scheme)) {
    if (!spec.part().make({model.dim, model.heads, model.length})->claims().drawn_each_step) continue;
    return spec.text() + " draws positions at each step";
  }
  return {};
}

class TrainingStep::Replay {
 public:
  Replay(Adam& adam, const LossOf& loss_of)
      : adam_(adam),
        loss_of_(loss_of),
        device_(adam.parameters().at(0).tensor.device()),
        seed_(Tensor::scalar(1, adam.parameters()[0].tensor.dtype() == DType::f64 ? DType::f64 : DType::f32, device_)),
        recorded_(device_, [this] { return work(); }) {}
  Replay(const Replay&) = delete;  // the graph contains the address of this object
  Replay& operator=(const Replay&) = delete;

  // Uploads the batches of a step, and records the second step. An Error here has changed no weight.
  void prepare(const std::vector<TrainingBatch>& batches) {
    const bool first = inputs_.empty();
    if (first) inputs_ = batches;
    for (std::size_t part = 0; part < batches.size(); ++part) {
      inputs_[part].counted = batches[part].counted, inputs_[part].tokens = batches[part].tokens;
      for (std::size_t k = 0; k < batches[part].tensors.size(); ++k) {
        const Tensor& from = batches[part].tensors[k];
        Tensor& to = inputs_[part].tensors[k];
        if (!(from.shape() == to.shape()))
          throw Error(to_text("a batch is ", from.shape(), ", those before were ", to.shape()));
        if (first)
          to = raw::copy(raw::to_device(from, device_));
        else
          raw::copy_into(raw::to_device(from, device_), to);
      }
    }
    if (!recorded_.recorded()) adam_.zero_gradients();  // or the graph would keep a second copy
    recorded_.record_if_due();
  }

  // Takes step `n` with these batches; skipped if gradients are not finite. Throws the errors of total(); for a loss
  // that is not finite, only after the step.
  StepOutcome step(std::int64_t n, double learning_rate, double clip, std::optional<double> scale) {
    std::vector<LossSum> parts;
    for (const TrainingBatch& batch : inputs_) parts.push_back(counts_of(batch, scale));
    const double targets = total(parts, n).targets, factor = scale.value_or(1);
    adam_.prepare(learning_rate, clip * targets, factor, targets);
    raw::copy_into(raw::to_device(Tensor::scalar(factor, seed_.dtype()), device_), seed_);
    const std::vector<Tensor>& losses = recorded_.run();
    const GradientNorm norm = adam_.finish();
    for (std::size_t k = 0; k < parts.size(); ++k) parts[k].loss = losses[k].item();
    const LossSum sum = total(parts, n);
    return {sum.loss / targets, norm.value / targets, static_cast<std::int64_t>(sum.tokens), !norm.finite()};
  }

 private:
  // No part's number is in it: a loss that draws by it cannot be recorded.
  std::vector<Tensor> work() {
    std::vector<Tensor> losses;
    sum_by_halves(adam_, 0, std::ssize(inputs_), [&](std::int64_t part) {
      const Tensor loss = loss_of_(inputs_[static_cast<std::size_t>(part)], 1);
      backward(loss, seed_);
      losses.push_back(loss.detach());
    });
    adam_.launch();
    return losses;
  }

  Adam& adam_;
  const LossOf& loss_of_;
  Device device_;
  std::vector<TrainingBatch> inputs_;  // tensors on the device; counts of the batches uploaded last
  Tensor seed_;
  RecordedStep recorded_;
};

// ---- The step

TrainingStep::TrainingStep(MixedPrecision& precision, MakeBatch batch, LossOf loss_of, const StepOptions& options)
    : precision_(precision), batch_(std::move(batch)), loss_of_(std::move(loss_of)), options_(options) {
  if (precision.optimizer().parameters().empty())
    throw InputError("training: every parameter is frozen; one that trains required");
  if (options.recorded) {
    Adam* const adam = dynamic_cast<Adam*>(&precision.optimizer());
    if (!adam) throw InputError("recorded step: SGD given; Adam required, whose rate a graph reads anew at each step");
    replay_ = std::make_unique<Replay>(*adam, loss_of_);
  }
  if (!options.ranks) return;
  if (options.recorded)
    throw InputError("recorded step: ", options.ranks->size(),
        " ranks given; one required, because a graph exchanges nothing with others");
  if (options.accumulate % options.ranks->size() != 0)
    throw InputError("accumulate: ", options.accumulate, " parts of a step given to ", options.ranks->size(),
        " ranks; a multiple of the ranks required");
}

TrainingStep::~TrainingStep() = default;

void TrainingStep::stop_recording(const std::string& reason) {
  replay_.reset();
  why_not_recorded_ = reason;
}

StepOutcome TrainingStep::take(std::int64_t step, double learning_rate) {
  const auto started = std::chrono::steady_clock::now();
  const SubnormalsAsZero taken;
  try {
    std::optional<StepOutcome> outcome;
    if (replay_ && !detail::observer) outcome = replayed(step, learning_rate);  // observers see nothing of a graph
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
  Communicator* const ranks = options_.ranks;
  const std::int64_t own = options_.accumulate / (ranks ? ranks->size() : 1);
  const std::int64_t begin = first_part(step) + (ranks ? ranks->rank() * own : 0);
  Optimizer& optimizer = precision_.optimizer();
  const auto forward_and_backward = [&] {
    const std::optional<double> scale = scale_of(step);
    std::vector<LossSum> parts;
    std::vector<Tensor> losses;
    sum_by_halves(optimizer, begin, begin + own, [&](std::int64_t part) {
      const TrainingBatch batch = batch_(part);
      parts.push_back(counts_of(batch, scale));
      losses.push_back(add_gradients(batch, part, loss_of_, scale));
    });
    // Losses are read after all work is queued. Reading one earlier would wait for the GPU.
    for (std::size_t k = 0; k < parts.size(); ++k) parts[k].loss = losses[k].item();
    if (!ranks) return total(parts, step);
    const LossSum sum = total(gathered(*ranks, parts), step);
    sum_gradients(*ranks, optimizer, shared_);
    return sum;
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
