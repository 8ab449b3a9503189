// Perplexity beyond the training length, and whether distant text helps.
//
// Perplexity at length T (DAPE): windows of T tokens pass through the model, and the last K targets count:
//   PPL(T) = exp(mean of -log p over the last K targets of all windows)
// Windows of all lengths end at the same positions: all predict the same tokens; only the text before differs.
//
// Delta-P (DAPE V2, App. B): Delta P_T = P(M(x[-T_train:]), K) - P(M(x_T), K). Above 0 the text before the last T_train
// tokens helps, below 0 it harms. The appendix says K = T_train, but its numbers are for the last 256 tokens: both are
// printed.
#pragma once

#include "examples/whence/language/language_model.h"
#include "examples/whence/report/table.h"

namespace whence::language {

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
