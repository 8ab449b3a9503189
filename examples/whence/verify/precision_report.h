// Limits of 16- and 32-bit numbers, at which positions, angles, biases, gates and sums become equal. Every figure comes
// from the engine's own ops in that dtype.
#pragma once

#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace whence {

// One question, with its answer per dtype. NaN: not found in the searched range.
struct PrecisionRow {
  std::string key;       // "sigmoid_is_one"
  std::string question;  // in words
  std::vector<double> answers = {};
};

struct PrecisionOptions {
  int heads = 8;                           // of ALiBi and KERPLE
  double logit = 10;                       // to which biases are added
  std::vector<int> lengths = {512, 2048};  // of CoPE's sums
  std::int64_t furthest = 1 << 25;         // largest position or distance searched
};

[[nodiscard]] std::vector<PrecisionRow> precision_report(
    const std::vector<DType>& dtypes, const PrecisionOptions& options);

}  // namespace whence
