// A language model on bytes learns a text and continues its first byte.   language [FILE, of more than 64 bytes]
#include <cmath>
#include <fstream>
#include <iostream>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "nn/decoding.h"
#include "nn/training/optim.h"
#include "nn/training/schedule.h"
#include "tensor/random.h"

using namespace whence;

std::string text =
    "This is the house that Jack built. This is the malt that lay in the house that Jack built. This is "
    "the rat that ate the malt that lay in the house that Jack built. ";

// Returns the byte at which the running sum of the probabilities passes `place`, in [0, 1).
index_t draw(const std::vector<double>& probabilities, double place) {
  std::size_t byte = 0;
  while (byte + 1 < probabilities.size() && place >= probabilities[byte]) place -= probabilities[byte++];
  return static_cast<index_t>(byte);
}

int main(int argc, char** argv) {
  if (argc > 1) {
    std::ifstream file(argv[1], std::ios::binary);
    std::getline(file, text, '\0');
  }
  const index_t batch = 8, length = 64, steps = 200;
  Transformer model(
      {.vocabulary = 256, .length = length, .dim = 64, .layers = 2, .heads = 4, .scheme = "cope(p_max=16) + rope"});
  model.initialise(0);
  Adam optimizer(model, {.weight_decay = 0.1});
  const Schedule rate({.peak = 3e-3, .steps = steps, .warm_up = 20, .decay = Decay::cosine});
  for (index_t step = 1; step <= steps; ++step) {
    const Tensor bytes = Tensor::empty({batch, length}, DType::i64), next = Tensor::like(bytes);
    for (index_t row = 0; row < batch; ++row) {  // a random place in the text; the target of each byte is the next byte
      const Stream places(0, "places", static_cast<std::uint64_t>(step * batch + row));
      const char* from = text.data() + places.below(0, static_cast<std::uint32_t>(text.size()) - length);
      std::copy(from, from + length, bytes.data<index_t>() + row * length);
      std::copy(from + 1, from + 1 + length, next.data<index_t>() + row * length);
    }
    const Tensor loss = cross_entropy(model(bytes), next);
    optimizer.zero_gradients();
    backward(loss);
    optimizer.step(rate(step), clip_by_global_norm(model.parameters(), 1));
    if (step % 50 == 0) std::cout << "step " << step << "  bits per byte " << loss.item() / std::log(2) << '\n';
  }
  const NoGrad no_grad;
  Decoding decoding(model, 2 * length);  // caches keys and values, so that a further byte costs one row
  index_t byte = text[0];
  for (std::uint64_t n = 0; decoding.length() < 2 * length; ++n) {
    std::cout << static_cast<char>(byte);
    const Tensor logits = decoding(Tensor::full({1, 1}, static_cast<double>(byte), DType::i64));
    byte = draw(softmax(logits).to_vector(), Stream(0, "sampling", n).uniform53(0));
  }
  std::cout << '\n';
}
