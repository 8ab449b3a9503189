// The same training in f32, bf16 and f16: 16-bit weights and activations, f32 masters, a loss scale where f16 needs it.
#include <iostream>

#include "autograd/ops.h"
#include "nn/training/training.h"
#include "nn/transformer.h"
#include "tensor/random.h"

using namespace whence;

// Returns batch n: rows of random tokens. The target of each token is the first token of its row.
TrainingBatch batch_of(std::int64_t n) {
  const index_t batch = 16, length = 8, vocabulary = 4;
  const Stream random(0, "half_precision", static_cast<std::uint64_t>(n));
  const Tensor tokens = Tensor::empty({batch, length}, DType::i64), targets = Tensor::like(tokens);
  for (index_t i = 0; i < batch * length; ++i) {
    tokens.data<index_t>()[i] = random.below(static_cast<std::uint64_t>(i), vocabulary);
    targets.data<index_t>()[i] = tokens.data<index_t>()[i / length * length];
  }
  return {.tensors = {tokens, targets}, .counted = batch * length, .tokens = batch * length};
}

int main() {
  for (const DType storage : {DType::f32, DType::bf16, DType::f16}) {
    Transformer model({.vocabulary = 4, .length = 8, .dim = 32, .layers = 1, .heads = 1, .scheme = "cope(p_max=8)"});
    model.initialise(0);
    MixedPrecision precision(model, storage, {.weight_decay = 0.01}, {.growth_steps = 50});
    const auto loss_of = [&](const TrainingBatch& batch, std::int64_t) {
      return cross_entropy_sum(model(batch.tensors[0]), batch.tensors[1]);  // the sum over targets; the step divides
    };
    TrainingStep step(precision, batch_of, loss_of, {.clip = 1});
    std::cout << to_string(storage);
    for (std::int64_t n = 1; n <= 200; ++n) {
      const StepOutcome outcome = step.take(n, 3e-3);
      if (n % 50 == 0) std::cout << "  step " << n << " loss " << outcome.loss;
    }
    std::cout << "  bytes of a weight " << size_of(model.parameters()[0].tensor.dtype());
    if (const auto& scale = precision.loss_scale())  // only f16 has it
      std::cout << "  loss scale " << scale->value() << ", steps skipped " << scale->state().skipped;
    std::cout << '\n';
  }
}
