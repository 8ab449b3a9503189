// A step that ranks share. Each makes as many parts, a branch of the tree in accumulated.h. The rest of the tree is
// summed over ranks: to the same bits on all, for any number of them.
#pragma once

#include "nn/training/accumulated.h"

namespace whence {

class Communicator;

class SharedGradients {
 public:
  // REQUIRES: `ranks` outlives this.
  explicit SharedGradients(Communicator& ranks) : ranks_(ranks) {}

  // Leaves in every parameter's gradient the sum over all ranks'. Returns the total() of all ranks' parts. Error where
  // a parameter has no gradient.
  [[nodiscard]] LossSum sum(const Optimizer& optimizer, const std::vector<LossSum>& own, std::int64_t n);

 private:
  Communicator& ranks_;
  Tensor gradients_;  // every parameter's, one after another
};

}  // namespace whence
