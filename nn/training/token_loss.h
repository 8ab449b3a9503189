// The loss of a transformer that predicts tokens, as steps of training take it.
#pragma once

#include <cstdint>

#include "nn/training/step.h"
#include "nn/transformer.h"

namespace whence {

// Cross entropy of a batch's targets, i64 [b t], a target of -1 being none. Dropout is a pure
// function of seed and part. REQUIRES: `model` outlives the result.
[[nodiscard]] LossOf token_loss(const Transformer& model, std::uint64_t seed);

}  // namespace whence
