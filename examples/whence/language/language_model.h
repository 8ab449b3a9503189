// Windows of a corpus: batches for training, the loss of a part, and perplexity beyond the training length.
#pragma once

#include <cstdint>
#include <vector>

#include "examples/whence/language/corpus.h"
#include "examples/whence/report/table.h"
#include "nn/training/step.h"
#include "nn/transformer.h"

namespace whence::language {

struct WindowOptions {
  index_t length = 128;    // tokens that the model sees at once; it predicts the token after each
  index_t sequences = 16;  // windows per pass
};

// Returns windows of `length` + 1 tokens that begin at `starts`: inputs i64 [b t], targets i64 [b t], one to the right.
struct Windows {
  Tensor inputs, targets;
};
[[nodiscard]] Windows windows_at(const Corpus& corpus, Part part, const std::vector<index_t>& starts, index_t length);

// Returns the starts of the windows of training part 1, 2, ...: uniform over the training text, a pure function of
// (seed, part). Windows may cross the borders of documents.
[[nodiscard]] std::vector<index_t> training_starts(
    const Corpus& corpus, const WindowOptions& options, std::uint64_t seed, std::int64_t part);
[[nodiscard]] TrainingBatch lm_batch(
    const Corpus& corpus, const WindowOptions& options, std::uint64_t seed, std::int64_t part);

// Returns -log p of the last `last` targets of each window, in double for every dtype of the model, in one pass over
// whole windows. No gradients.
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
// Evaluates at most `windows` windows spread evenly over a part of the corpus, without overlap. 0: the whole part, each
// token but the first a target once. Windows then follow one another. The last one ends with the part, and rereads
// tokens that it does not score; a part shorter than a window is one shorter window.
[[nodiscard]] LanguageScore score(
    const Transformer& model, const Corpus& corpus, Part part, const WindowOptions& options, index_t windows);

// Perplexity at length T (DAPE): windows of T tokens pass through the model, and the last K targets count:
//   PPL(T) = exp(mean of -log p over the last K targets of all windows)
// Windows of all lengths end at the same positions: all predict the same tokens; only the text before differs.
//
// Delta-P (DAPE V2, App. B): Delta P_T = P(M(x[-T_train:]), K) - P(M(x_T), K). Above 0 the text before the last T_train
// tokens helps, below 0 it harms. The appendix says K = T_train, but its numbers are for the last 256 tokens: both are
// printed.
struct LengthOptions {
  index_t train_length = 128;
  std::vector<index_t> multiples = {1, 2, 4, 8, 16, 32, 64};  // of train_length
  index_t last = 256;                                         // K
  index_t windows = 20;           // at most; fewer if the text has no room for more without overlap
  index_t tokens_at_once = 4096;  // approximate size of a pass of windows
  bool quiet = true;
};

struct DeltaP {
  index_t last = 0;  // K
  double full = 0, truncated = 0;
  [[nodiscard]] double value() const { return truncated - full; }
};

struct LengthScore {
  index_t length = 0, windows = 0;
  index_t last = 0;           // targets that count in each window: K, or the length if less
  double perplexity = 0;      // nan if the model refused the length
  double standard_error = 0;  // of the perplexity, from the spread of windows; nan for one window
  std::vector<DeltaP> deltas = {};
  std::string refused = {};       // the model's reason
  std::vector<double> nats = {};  // cost of each window's last targets
};

// Ascending by length, always with the training length. FileError when the part has no room for the longest window;
// Interrupted.
[[nodiscard]] std::vector<LengthScore> perplexity_by_length(
    const Transformer& model, const Corpus& corpus, const LengthOptions& options, Part part = Part::validation);
[[nodiscard]] Table length_table(const std::vector<LengthScore>& scores);
[[nodiscard]] Table delta_table(const std::vector<LengthScore>& scores);

}  // namespace whence::language
