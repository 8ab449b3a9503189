// Trains a Transformer to predict the next token of a corpus, and measures its loss on validation text.
#pragma once

#include <cstdint>
#include <vector>

#include "examples/whence/language/corpus.h"
#include "examples/whence/run/training.h"
#include "nn/transformer.h"

namespace whence::language {

struct WindowOptions {
  index_t length = 128;    // tokens that the model sees at once; it predicts the token after each
  index_t sequences = 16;  // windows per pass
};

// Returns `count` windows of `length` + 1 tokens that begin at `starts`: inputs i64 [b t], targets i64 [b t], one to the right.
struct Windows {
  Tensor inputs, targets;
};
[[nodiscard]] Windows windows_at(const Corpus& corpus, Part part, const std::vector<index_t>& starts, index_t length);

// Returns the starts of the windows of training part 1, 2, ...: uniform over the training text, a pure function of
// (seed, part). Windows may cross the borders of documents.
[[nodiscard]] std::vector<index_t> training_starts(
    const Corpus& corpus, const WindowOptions& options, std::uint64_t seed, std::int64_t part);

// Computes one part of a training step in two halves: pure functions of model, seed and part.
// REQUIRES: corpus.require_window(training, length).
[[nodiscard]] TrainingBatch lm_batch(
    const Corpus& corpus, const WindowOptions& options, std::uint64_t seed, std::int64_t part);

// Returns -log softmax(z)_target = log sum_v e^{z_v - m} + m - z_target of one row of logits, in double for every dtype
// of the model.
[[nodiscard]] double negative_log_probability(const double* logits, index_t vocabulary, std::int64_t target);

// Returns -log p of the last `last` targets of each window, window after window, in one pass over whole windows. No gradients.
[[nodiscard]] std::vector<std::vector<double>> token_losses(
    const Transformer& model, const Windows& windows, index_t last);

struct LanguageScore {
  double loss = 0;                                          // nats per token, the mean
  double perplexity = 0;                                    // its exponential
  double bits_per_byte = 0;                                 // comparable between tokenisers, as are the next two
  double perplexity_per_byte = 0, perplexity_per_word = 0;  // per byte and word of the part, in place of tokens
  std::int64_t tokens = 0;
  std::vector<std::int64_t> graded = {};  // targets of each window
  std::vector<double> nats = {};          // cost of each window's targets
};
// Evaluates at most `windows` windows spread evenly over a part of the corpus, without overlap.
[[nodiscard]] LanguageScore score(
    const Transformer& model, const Corpus& corpus, Part part, const WindowOptions& options, index_t windows);
// Evaluates a whole part: each token but the first is a target once. Windows follow one another. The last window ends
// with the part, and rereads tokens that it does not score; a part shorter than a window is one shorter window.
[[nodiscard]] LanguageScore score_whole(
    const Transformer& model, const Corpus& corpus, Part part, const WindowOptions& options);

}  // namespace whence::language
