// Losses besides cross_entropy (autograd/ops.h). Shapes must agree exactly: a loss that broadcasts hides a mistake.
#pragma once

#include "tensor/tensor.h"

namespace whence {

// cross_entropy for a model on any device: targets may still be on the CPU.
[[nodiscard]] Tensor token_loss(
    const Tensor& logits, const Tensor& target, index_t ignored = -1, Site at = Site::current());
// The same with cross_entropy_sum: what a step of several parts adds up, and a recorded one needs.
[[nodiscard]] Tensor token_loss_sum(
    const Tensor& logits, const Tensor& target, index_t ignored = -1, Site at = Site::current());

// Mean of (x - target)^2 over all elements, a scalar.
[[nodiscard]] Tensor mean_squared_error(const Tensor& x, const Tensor& target, Site at = Site::current());

}  // namespace whence
