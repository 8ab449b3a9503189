// The smallest training program, on the core alone: a CoPE model learns to repeat the first token of its sequence.
#include <iostream>

#include "autograd/backward.h"
#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/training/optim.h"
#include "nn/transformer.h"
#include "tensor/random.h"

using namespace whence;

int main() {
  const index_t length = 8, vocabulary = 4;
  Transformer model(
      {.vocabulary = vocabulary, .length = length, .dim = 32, .layers = 1, .heads = 1, .scheme = "cope(p_max=8)"});
  model.initialise(0);
  Adam optimizer(model);
  const Tensor tokens = Tensor::empty({16, length}, DType::i64), targets = Tensor::empty({16, length}, DType::i64);
  for (index_t step = 1; step <= 200; ++step) {
    const Stream random(0, "minimal", static_cast<std::uint64_t>(step));
    for (index_t i = 0; i < tokens.numel(); ++i) {
      tokens.data<index_t>()[i] = random.below(static_cast<std::uint64_t>(i), vocabulary);
      targets.data<index_t>()[i] = tokens.data<index_t>()[i / length * length];  // the first token of its row
    }
    struct : Observer {
      Tensor gate_logits;  // watched in addition to the parameters: q_i.k_j, [b h i j], the input of the gates
      bool wants_under(const std::string&, const std::vector<std::string>&) const override { return true; }
      Tensor passed(const std::string& name, const Tensor& x, const Site&) override {
        return name.ends_with("gate_logits") ? gate_logits = x : x;
      }
    } seen;
    const Tensor loss = cross_entropy(model(tokens), targets);
    if (step % 50 == 0) std::cout << "step " << step << "  loss " << loss.item() << '\n';
    if (step == 50)  // while the model learns
      std::cout << "d loss / d gate logits: " << select(grad(loss, {}, {seen.gate_logits})[0], 0, 0)
                << "\nrow 0 is 0: its query sees one key, which gets all the weight, whatever its gate\n";
    optimizer.zero_gradients();
    backward(loss);
    optimizer.step(3e-3);
  }
}
