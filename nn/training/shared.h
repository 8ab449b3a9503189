// A step that ranks share. Each rank computes the same number of parts, a branch of the tree in accumulated.h. The rest
// of the tree is summed over ranks. All ranks get the same bits, for any number of ranks.
#pragma once

#include "nn/training/accumulated.h"

namespace whence {

class Communicator;

class SharedGradients {
 public:
  // REQUIRES: `ranks` outlives this.
  explicit SharedGradients(Communicator& ranks) : ranks_(ranks) {}

  // Sets every parameter's gradient to the sum over all ranks. Returns the total() of all ranks' parts. Error if a
  // parameter has no gradient.
  [[nodiscard]] LossSum sum(const Optimizer& optimizer, const std::vector<LossSum>& own, std::int64_t n);

 private:
  Communicator& ranks_;
  Tensor gradients_;  // every parameter's, one after another
};

}  // namespace whence
