// The best validation of a run: its score, its weights, and how many worse ones followed. A checkpoint's facts keep it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "examples/whence/run/run_folder.h"
#include "nn/training/precision.h"

namespace whence {

// A number that a checkpoint keeps, or `otherwise` where it has none. FileError where it is no number.
[[nodiscard]] double number_fact(const RunFolder::Facts& facts, const std::string& name, double otherwise);
[[nodiscard]] std::int64_t whole_fact(const RunFolder::Facts& facts, const std::string& name, std::int64_t otherwise);

class BestValidation {
 public:
  // REQUIRES: `model` outlives this.
  BestValidation(const MixedPrecision& model, bool keep_weights) : model_(model), keep_weights_(keep_weights) {}

  bool offer(double score, std::int64_t step);  // is it the best? Then its weights are copied, if they are wanted
  void remember();                              // the weights as they are
  void put_back() const;

  [[nodiscard]] RunFolder::Facts facts() const;
  void restore(const RunFolder::Facts& facts);
  [[nodiscard]] double score() const { return score_; }
  [[nodiscard]] std::int64_t step() const { return step_; }
  [[nodiscard]] std::int64_t worse_since() const { return worse_since_; }

 private:
  const MixedPrecision& model_;
  bool keep_weights_;
  std::vector<Tensor> weights_;
  double score_ = 0;
  std::int64_t step_ = 0, worse_since_ = 0;
};

}  // namespace whence
