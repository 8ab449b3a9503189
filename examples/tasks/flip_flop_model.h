// A decoder trained and tested on flip-flop: what flip_flop, quickstart and bench share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/app/training.h"
#include "examples/tasks/flip_flop.h"
#include "nn/transformer.h"

namespace whence::tasks {

struct FlipFlopModelOptions {
  std::string scheme = "cope";
  std::int64_t length = 512;  // tokens of a string; the model sees one less
  std::int64_t dim = 256, layers = 4, heads = 4;
  std::string activation = "gelu";
  std::string executor = "auto";
  std::string targets = "reads";  // where the loss is taken: reads, all
  double dropout = 0;
  std::int64_t batch = 16;             // strings per step
  std::int64_t test_strings = 1000;    // per test set
  std::string answers = "vocabulary";  // what a prediction may be: vocabulary, bits
};

// The model, not initialised. Throws InputError when the sizes do not fit.
TransformerOptions transformer_options(const FlipFlopModelOptions& options);

Tensor token_tensor(const Tokens& tokens, std::int64_t rows);  // i64 [rows, tokens / rows]

// Everything that a resumed run must share, as names and texts.
std::vector<std::pair<std::string, std::string>> description(
    const FlipFlopModelOptions& model, const TrainingOptions& training);

// The loss of training step 1, 2, ...: a pure function of model, seed and step.
Tensor flip_flop_loss(
    const Transformer& model, const FlipFlopModelOptions& options, std::uint64_t seed, std::int64_t step);

TrainingResult train_flip_flop(
    Transformer& model, const FlipFlopModelOptions& options, const TrainingOptions& training);

struct FlipFlopScore {
  FlipFlopSet set;
  ReadErrors model;
  std::vector<std::pair<std::string, ReadErrors>> baselines;

  [[nodiscard]] double best_guess_percent() const;  // the read error of the best baseline
};
// In distribution, sparse, dense. Throws Interrupted when asked to stop.
std::vector<FlipFlopScore> test_flip_flop(
    const Transformer& model, const FlipFlopModelOptions& options, std::uint64_t seed, bool quiet);

}  // namespace whence::tasks
