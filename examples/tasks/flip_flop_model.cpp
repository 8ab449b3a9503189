// Training and testing on flip-flop.
#include "examples/tasks/flip_flop_model.h"

#include <algorithm>
#include <iostream>

#include "autograd/ops.h"
#include "autograd/recording.h"
#include "examples/app/interrupt.h"
#include "examples/app/progress.h"
#include "examples/app/text.h"
#include "nn/loss.h"
#include "tensor/raw.h"

namespace whence::tasks {

TransformerOptions transformer_options(const FlipFlopModelOptions& options) {
  return {.vocabulary = flip_flop_vocabulary,
      .length = options.length,
      .dim = options.dim,
      .layers = options.layers,
      .heads = options.heads,
      .activation = activation_of(options.activation),
      .scheme = options.scheme,
      .executor = options.executor,
      .dropout = options.dropout};
}

Tensor token_tensor(const Tokens& tokens, std::int64_t rows) {
  const Tensor result = Tensor::empty({rows, static_cast<index_t>(tokens.size()) / rows}, DType::i64);
  std::copy(tokens.begin(), tokens.end(), result.data<std::int64_t>());
  return result;
}

std::vector<std::pair<std::string, std::string>> description(
    const FlipFlopModelOptions& model, const TrainingOptions& training) {
  std::vector<std::pair<std::string, std::string>> facts{{"scheme", model.scheme},
      {"length", std::to_string(model.length)}, {"dim", std::to_string(model.dim)},
      {"layers", std::to_string(model.layers)}, {"heads", std::to_string(model.heads)},
      {"activation", model.activation}, {"targets", model.targets}, {"dropout", number_text(model.dropout)},
      {"batch", std::to_string(model.batch)}};
  for (auto& fact : whence::description(training)) facts.push_back(std::move(fact));
  return facts;
}

// The batch of training step, or part of one, 1, 2, ...
static FlipFlopBatch training_batch(const FlipFlopModelOptions& options, std::uint64_t seed, std::int64_t part) {
  const Targets targets = options.targets == "all" ? Targets::all : Targets::clean;
  return flip_flop_batch(training_set, static_cast<int>(options.length), seed,
      static_cast<std::uint64_t>((part - 1) * options.batch), static_cast<int>(options.batch), targets);
}

static Tensor loss_of(
    const Transformer& model, const Tensor& inputs, const Tensor& targets, std::uint64_t seed, std::int64_t part) {
  const Pass pass{.training = true, .seed = seed, .step = static_cast<std::uint64_t>(part)};
  return token_loss(model(inputs, pass), targets, ignored_target);
}

Tensor flip_flop_loss(
    const Transformer& model, const FlipFlopModelOptions& options, std::uint64_t seed, std::int64_t step) {
  const FlipFlopBatch batch = training_batch(options, seed, step);
  return loss_of(
      model, token_tensor(batch.inputs, batch.sequences), token_tensor(batch.targets, batch.sequences), seed, step);
}

TrainingResult train_flip_flop(
    Transformer& model, const FlipFlopModelOptions& options, const TrainingOptions& training) {
  TrainingJob job{.label = model.scheme(), .model = &model};
  job.description = description(options, training);
  job.batch = [&](std::int64_t part) -> TrainingBatch {
    const FlipFlopBatch batch = training_batch(options, training.seed, part);
    const auto targets =
        static_cast<std::int64_t>(batch.targets.size()) - std::ranges::count(batch.targets, ignored_target);
    return {{token_tensor(batch.inputs, batch.sequences), token_tensor(batch.targets, batch.sequences)}, targets,
        batch.sequences * batch.positions};
  };
  job.loss_of = [&](const TrainingBatch& batch, std::int64_t part) {
    return loss_of(model, batch.tensors[0], batch.tensors[1], training.seed, part) * static_cast<double>(batch.counted);
  };
  job.not_recordable = not_recordable(model.options());
  job.sequences = options.batch;
  return train(job, training);
}

double FlipFlopScore::best_guess_percent() const {
  double best = 100;
  for (const auto& [name, errors] : baselines) best = std::min(best, errors.error_percent());
  return best;
}

static FlipFlopScore test_on(const FlipFlopSet& set, const Transformer& model, const FlipFlopModelOptions& options,
    std::uint64_t seed, Progress& progress, std::int64_t done) {
  const NoGrad no_grad;
  FlipFlopScore score{.set = set, .model = {}, .baselines = {}};
  for (const Baseline baseline : baselines) score.baselines.push_back({std::string(name(baseline)), {}});
  for (std::int64_t first = 0; first < options.test_strings; first += options.batch) {
    if (interrupt_requested()) throw Interrupted("testing: stopped before the results were complete");
    const int count = static_cast<int>(std::min(options.batch, options.test_strings - first));
    const FlipFlopBatch batch = flip_flop_batch(
        set, static_cast<int>(options.length), seed, static_cast<std::uint64_t>(first), count, Targets::clean);
    const Tensor given = raw::cast(model(token_tensor(batch.inputs, batch.sequences)), DType::f32);
    const Tensor logits = raw::contiguous(raw::to_device(given, Device::cpu()));
    const std::span<const float> numbers(logits.data<float>(), static_cast<std::size_t>(logits.numel()));
    score.model.add(batch, most_probable(numbers, options.answers == "bits" ? Answers::bits : Answers::vocabulary));
    for (std::size_t k = 0; k < score.baselines.size(); ++k)
      score.baselines[k].second.add(batch, predict(baselines[k], batch));
    progress.update(done + first + count, count * (options.length - 1), {});
  }
  return score;
}

std::vector<FlipFlopScore> test_flip_flop(
    const Transformer& model, const FlipFlopModelOptions& options, std::uint64_t seed, bool quiet) {
  std::vector<FlipFlopScore> scores;
  Progress progress("test", 3 * options.test_strings, 0, ProgressStyle::for_standard_error(quiet), std::cerr);
  for (const FlipFlopSet& set : {in_distribution_set, sparse_set, dense_set}) {
    scores.push_back(
        test_on(set, model, options, seed, progress, static_cast<std::int64_t>(scores.size()) * options.test_strings));
  }
  progress.finish();
  return scores;
}

}  // namespace whence::tasks
