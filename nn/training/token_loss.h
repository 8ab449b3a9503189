// The loss of a transformer that predicts tokens, for training steps.
#pragma once

#include <cstdint>

#include "nn/training/step.h"
#include "nn/transformer.h"

namespace whence {

// Cross entropy of a batch's targets, i64 [b t], where -1 means no target. Dropout is a pure function of seed and part.
// REQUIRES: `model` outlives the result.
[[nodiscard]] LossOf token_loss(const Transformer& model, std::uint64_t seed);

}  // namespace whence
