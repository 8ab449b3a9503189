// A training that is stopped and resumed ends in the same bits: a checkpoint has weights, Adam's moments and the step, and
// random draws of a step depend on seed and step alone.   resumed_run FOLDER
#include <iostream>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "nn/io/checkpoint.h"
#include "nn/transformer.h"
#include "tensor/random.h"

using namespace whence;

struct Run {
  Transformer model{
      {.vocabulary = 4, .length = 8, .dim = 32, .layers = 1, .heads = 2, .scheme = "cope(p_max=8)", .dropout = 0.1}};
  Adam optimizer{model};
  index_t step = 0;

  Run() { model.initialise(0); }

  void train_to(index_t last) {
    while (step < last) {
      const auto n = static_cast<std::uint64_t>(++step);
      const Tensor tokens = Tensor::empty({16, 8}, DType::i64), targets = Tensor::like(tokens);
      for (index_t i = 0; i < 16 * 8; ++i) {
        tokens.data<index_t>()[i] = Stream(0, "tokens", n).below(static_cast<std::uint64_t>(i), 4);
        targets.data<index_t>()[i] = tokens.data<index_t>()[i / 8 * 8];  // the first token of its row
      }
      const Tensor loss = cross_entropy(model(tokens, {.training = true, .seed = 0, .step = n}), targets);
      optimizer.zero_gradients();
      backward(loss);
      optimizer.step(3e-3, clip_by_global_norm(model.parameters(), 1));
      if (step % 20 == 0) std::cout << "  step " << step << "  loss " << loss.item() << '\n';
    }
  }
  std::string save(const CheckpointFolder& folder) const {
    return folder.save(model.parameters(), optimizer, {.step = step, .seed = 0});
  }
  void resume(const std::string& checkpoint) {
    step = load_checkpoint(checkpoint, model.parameters(), &optimizer).step;
  }
};

int main(int argc, char** argv) {
  const CheckpointFolder folder(argc > 1 ? argv[1] : "resumed_run");
  Run whole, first, second;
  std::cout << "without a stop, then with one after step 25\n";
  whole.train_to(60);
  first.train_to(25);
  const std::string checkpoint = first.save(folder);
  std::cout << "resumed by " << checkpoint << '\n';
  second.resume(checkpoint);
  second.train_to(60);
  bool same = true;
  for (std::size_t n = 0; n < whole.model.parameters().size(); ++n)
    same = same && whole.model.parameters()[n].tensor.to_vector() == second.model.parameters()[n].tensor.to_vector();
  std::cout << (same ? "the same bits in every weight\n" : "other weights\n");
}
