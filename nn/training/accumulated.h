// A step of several batches, its parts. Step n is made of parts (n - 1) P + 1 ... n P. Their gradients are summed by
// halves, ((1 + 2) + (3 + 4)) + ((5 + 6) + (7 + 8)), as long as the number can be halved. So ranks make the same sums
// as one process.
#pragma once

#include "nn/training/step.h"

namespace whence {

// Returns the batch of part 1, 2, ...: a pure function of the part.
using MakeBatch = std::function<TrainingBatch(std::int64_t part)>;

// Sets every parameter's gradient to the sum over parts [begin, end). `add_gradients` adds the gradients of one part.
void sum_by_halves(Optimizer& optimizer, std::int64_t begin, std::int64_t end,
    const std::function<void(std::int64_t part)>& add_gradients);

// The same for batches and their losses, each multiplied by `scale`. Returns the loss of each part.
[[nodiscard]] std::vector<LossSum> accumulate(Optimizer& optimizer, const MakeBatch& batch, const LossOf& loss_of,
    std::int64_t begin, std::int64_t end, std::optional<double> scale);

// A loss that is not finite.
class FailedStep : public NotFinite {
  using NotFinite::NotFinite;
};

// Returns the sum over all parts of step `n`. FailedStep for a loss that is not finite, Error if there is no target.
[[nodiscard]] LossSum total(const std::vector<LossSum>& parts, std::int64_t n);

}  // namespace whence
