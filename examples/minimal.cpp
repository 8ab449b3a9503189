// The smallest training program: a CoPE model learns to repeat the first token of its sequence.
#include <iostream>

#include "autograd/backward.h"
#include "autograd/inspect/probe.h"
#include "autograd/ops.h"
#include "nn/training/optim.h"
#include "nn/transformer.h"
#include "tensor/random.h"

using namespace whence;

int main() {
  const index_t batch = 16, length = 8, vocabulary = 4;
  Transformer model(
      {.vocabulary = vocabulary, .length = length, .dim = 32, .layers = 1, .heads = 1, .scheme = "cope(p_max=8)"});
  model.initialise(0);
  Adam optimizer(model);
  for (index_t step = 1; step <= 200; ++step) {
    const Tensor tokens = Tensor::empty({batch, length}, DType::i64),
                 targets = Tensor::empty({batch, length}, DType::i64);
    const Stream random(0, "minimal", static_cast<std::uint64_t>(step));
    for (index_t i = 0; i < batch * length; ++i) {
      tokens.data<index_t>()[i] = random.below(static_cast<std::uint64_t>(i), vocabulary);
      targets.data<index_t>()[i] = tokens.data<index_t>()[i / length * length];  // the first of its row
    }
    const Capture capture("*.gate_logits");  // what to look at, besides the parameters
    const Tensor loss = cross_entropy(model(tokens), targets);
    optimizer.zero_gradients();
    backward(loss);
    optimizer.step(3e-3);
    if (step % 50 == 0) std::cout << "step " << step << "  loss " << loss.item() << '\n';
    if (step == 200) {
      // d loss / d q_i.k_j, [b h i j], as far as it comes through the gates; 0 for pairs that the mask hides
      const Tensor gates = capture["blocks.0.attention.position.gate_logits"].gradient();
      std::cout << "d loss / d gate logits of the first sequence: " << select(gates, 0, 0) << '\n';
    }
  }
}
