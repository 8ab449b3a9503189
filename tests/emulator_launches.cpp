// How many kernels a layer's part of a training step starts on a GPU. Each costs the host some microseconds whatever it
// does, so that small models wait for launches alone.
#include <algorithm>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "cuda/emulator/counters.h"
#include "nn/transformer.h"
#include "tests/reference.h"

using namespace whence;
using namespace whence::test;

namespace {

std::uint64_t launches_of_step(const std::string& scheme, index_t layers, index_t batch) {
  TransformerOptions options;
  options.vocabulary = 16, options.dim = 32, options.heads = 2, options.layers = layers, options.length = 16;
  options.scheme = scheme, options.executor = "reference";
  Transformer model(options);
  model.to(DType::bf16);
  model.to(Device::cuda(0));
  const Tensor tokens = Tensor::zeros({batch, 16}, DType::i64, Device::cuda(0));
  const auto step = [&] { backward(cross_entropy_sum(model(tokens), tokens)); };
  step();
  for (const auto& parameter : model.parameters()) clear_gradient(parameter.tensor);
  gpu::emulator::reset_counters();
  step();
  std::uint64_t launches = 0;
  for (const auto& [name, counted] : gpu::emulator::counters())
    if (!name.starts_with("copy from cpu") && !name.starts_with("copy to cpu")) launches += counted.launches;
  return launches;
}

std::uint64_t launches_per_layer(const std::string& scheme, index_t batch) {
  return launches_of_step(scheme, 2, batch) - launches_of_step(scheme, 1, batch);
}

}  // namespace

TEST_CASE("launches: a layer takes 32 without positions and with ALiBi, whatever the batch") {
  for (const std::string scheme : {"none", "alibi"}) {
    CAPTURE(scheme);
    const std::uint64_t few = launches_per_layer(scheme, 2);
    CHECK(few <= 32);
    CHECK(launches_per_layer(scheme, 8) == few);
  }
}
