// A few numbers that tell how a pass fares, for a line while training and for curves over it.
#pragma once

#include <string>
#include <vector>

#include "examples/whence/look/inspection.h"

namespace whence::look {

// "gradient norm" of "layer 0", 0.31; "gates", "at 0 or 1", of "layer 0", 12 (percent of what the mask does not hide).
struct Measure {
  std::string what;
  std::string where;  // empty: no share but the number itself
  std::string of;
  double value;
};

// The loss; the norm of the gradients of all parameters of each layer, and of those in none; of what a scheme passes
// that runs from 0 to 1 (gates) the share within 0.01 of either end; of what has a bound that is marked (positions,
// p_max) the share that has reached it.
[[nodiscard]] std::vector<Measure> measures_of(const Inspection& inspection);

// "loss 0.31, gradient norm 0.2 0.1, elsewhere 0.8, gates 12 % at 0 or 1": shares as the mean over layers.
[[nodiscard]] std::string line_of(const std::vector<Measure>& measures);

}  // namespace whence::look
