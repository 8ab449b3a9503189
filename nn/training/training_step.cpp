#include "nn/training/training_step.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <span>

#include "autograd/backward.h"
#include "autograd/node.h"
#include "tensor/device/recorded_step.h"
#include "tensor/error.h"
#include "tensor/ranks/collectives.h"
#include "tensor/raw.h"

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

namespace {

// Leaves in every parameter's gradient the sum over parts [begin, end): by halves while their number is even, so that
// ranks can do branches of the tree, and the odd number that is left in a row, as no rank splits it. As many sums wait
// for their other half as the tree is deep.
template <class OnePart>
void sum_by_halves(Adam& optimizer, std::int64_t begin, std::int64_t end, const OnePart& backward_of) {
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
  Replay(Adam& optimizer, const LossOf& loss_of)
      : device_(optimizer.parameters().at(0).tensor.device()),
        seed_(Tensor::scalar(
            1, optimizer.parameters()[0].tensor.dtype() == DType::f64 ? DType::f64 : DType::f32, device_)),
        work_(device_, [this, &optimizer, &loss_of] {
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
  if (!options.ranks) return;
  if (options.recorded)
    throw InputError(
        "recorded step: ", options.ranks->size(), " ranks given; one required, as a graph does not talk to others");
  if (options.accumulate % options.ranks->size() != 0)
    throw InputError("accumulate: ", options.accumulate, " parts of a step given to ", options.ranks->size(),
        " ranks; a multiple of the ranks required");
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

double mean_loss(const std::vector<PartFacts>& parts, double counted, std::int64_t step) {
  double sum = 0;
  for (const PartFacts& part : parts) {
    if (!std::isfinite(part.loss)) {
      throw FailedStep(to_text("training: the loss is ", part.loss, " at step ", step,
          "; a finite loss required; lower the learning rate or the largest norm of gradients"));
    }
    sum += part.loss;
  }
  return sum / counted;
}

void require_targets(double counted, std::int64_t step) {
  if (counted == 0) throw Error("training: no target in step ", step, "; at least one required; use larger batches");
}

}  // namespace

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

StepOutcome TrainingStep::attempt(std::int64_t step, double learning_rate) {
  Adam& optimizer = precision_.optimizer();
  std::optional<LossScale>& loss_scale = precision_.loss_scale();
  StepOutcome outcome;
  const std::int64_t first = (step - 1) * options_.accumulate + 1;  // of all ranks'
  const std::int64_t own = options_.accumulate / (options_.ranks ? options_.ranks->size() : 1),
                     own_first = first + (options_.ranks ? options_.ranks->rank() * own : 0);
  std::vector<TrainingBatch> given;  // of a recorded step
  std::vector<Tensor> losses;
  std::vector<PartFacts> own_facts;
  double scale = loss_scale && own_first != first ? scale_of(batch_(first).counted) : 0;
  const auto batch_of = [&](std::int64_t part) {
    TrainingBatch batch = batch_(part);
    if (scale == 0) scale = scale_of(batch.counted);
    own_facts.push_back({0, static_cast<double>(batch.counted), static_cast<double>(batch.tokens)});
    return batch;
  };
  if (replay_) {
    for (std::int64_t part = own_first; part < own_first + own; ++part) given.push_back(batch_of(part));
  } else {
    sum_by_halves(optimizer, own_first, own_first + own, [&](std::int64_t part) {
      const TrainingBatch batch = batch_of(part);
      const Tensor loss = loss_of_(batch, part);
      backward(loss, scale == 1 ? Tensor() : Tensor::full({}, scale, loss.dtype(), loss.device()));
      losses.push_back(loss.detach());
    });
  }
  // Losses are read when everything is under way: until then the host only runs ahead of a GPU.
  const auto all_parts = [&] {
    for (std::size_t k = 0; k < losses.size(); ++k) own_facts[k].loss = losses[k].item();
    return facts_of_all(options_.ranks, own_facts);
  };
  const auto targets_of = [&](const std::vector<PartFacts>& parts) {
    double counted = 0;
    for (const PartFacts& part : parts)
      counted += part.counted, outcome.tokens += static_cast<std::int64_t>(part.tokens);
    return counted;
  };
  // The gradients are those of the sum. Divided by all of the step's targets they are those of
  // the mean over one large batch.
  GradientNorm norm{};
  double targets = 0;
  if (replay_) {
    targets = targets_of(own_facts);
    require_targets(targets, step);
    optimizer.prepare_replay(learning_rate, options_.clip, scale * targets);
    losses = replay_->run(given, scale, step);
    outcome.loss = mean_loss(all_parts(), targets, step);
    norm = optimizer.replayed_norm();
    outcome.gradient_norm = norm.value;
  } else {
    const std::vector<PartFacts> parts = all_parts();
    targets = targets_of(parts);
    outcome.loss = mean_loss(parts, targets, step);
    require_targets(targets, step);
    if (options_.ranks) sum_gradients_over_ranks();
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
