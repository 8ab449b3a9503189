#include "nn/training/token_loss.h"

#include "autograd/ops.h"

namespace whence {

LossOf token_loss(const Transformer& model, std::uint64_t seed) {
  return [&model, seed](const TrainingBatch& batch, std::int64_t part) {
    const Pass pass{.training = true, .seed = seed, .step = static_cast<std::uint64_t>(part)};
    return cross_entropy_sum(model(batch.tensors[0], pass), batch.tensors[1]);
  };
}

}  // namespace whence
