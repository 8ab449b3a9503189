// Where numbers of 16 and 32 bits can no longer be told apart: positions, angles, biases, gates, sums. Every figure
// comes from the engine's own ops in that dtype.
#pragma once

#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace whence {

// One question, with its answer per dtype. NaN: nothing was found in the range searched.
struct PrecisionRow {
  std::string key;       // "sigmoid_is_one"
  std::string question;  // for people
  std::vector<double> answers = {};
};

struct PrecisionOptions {
  int heads = 8;                           // of ALiBi and KERPLE
  double logit = 10;                       // that biases are added to
  std::vector<int> lengths = {512, 2048};  // of CoPE's sums
  std::int64_t furthest = 1 << 25;         // position or distance that is looked at
};

[[nodiscard]] std::vector<PrecisionRow> precision_report(
    const std::vector<DType>& dtypes, const PrecisionOptions& options);

}  // namespace whence
