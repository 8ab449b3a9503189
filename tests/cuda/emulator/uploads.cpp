// The bytes that the host sends to a GPU in a step. They grow with the length of a run, never with its square, as no
// tensor of pairs is made there. Layers share them.

#include "cuda/emulator/counters.h"
#include "cuda/emulator/settings.h"
#include "nn/scheme.h"
#include "nn/transformer.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

// Counts of a forward and a backward pass, with weights and tokens in place, by kernel and direction of copies.
std::map<std::string, gpu::emulator::Counters> counted(
    const std::string& scheme, index_t length, bool padded, bool causal = true, index_t layers = 2) {
  const With dry(gpu::emulator::settings().dry, true);  // what is sent does not depend on any number there
  TransformerOptions options;
  options.vocabulary = 5, options.dim = 8, options.heads = 2, options.layers = layers, options.length = 96;
  options.scheme = scheme, options.executor = "reference", options.causal = causal;
  Transformer model(options);
  model.to(Device::cuda(0));
  const Tensor tokens = Tensor::zeros({2, length}, DType::i64, Device::cuda(0)),
               all = Tensor::full({2, length}, 1, DType::boolean);
  const Sequence sequence = padded ? Sequence::padded(all, causal) : Sequence::run(length, causal);
  gpu::emulator::reset_counters();
  backward(sum(model(tokens, sequence, {})));
  return gpu::emulator::counters();
}

std::uint64_t bytes_sent(const std::string& scheme, index_t length, bool padded, bool causal = true) {
  return counted(scheme, length, padded, causal)["copy from cpu"].global_written;
}

std::vector<std::string> schemes() {
  std::vector<std::string> all{"cope(p_max=3) + rope", "dape(kerple, width=3)", "cdape(kerple, width=3)",
      "randomised(alibi, length=128)", "randomised(kerple, length=128)", "interpolated(kerple, factor=2)"};
  for (const SchemeInfo& info : registered_schemes())
    if (!info.takes_base) all.push_back(info.name);
  return all;
}

}  // namespace

TEST_CASE("uploads: twice the tokens are at most twice the bytes, for every scheme") {
  for (const std::string& scheme : schemes()) {
    for (const bool padded : {false, true}) {
      INFO(scheme, ", padded ", padded);
      const std::uint64_t few = bytes_sent(scheme, 48, padded), many = bytes_sent(scheme, 96, padded);
      CHECK(many <= 2 * few + 64);
    }
  }
}

TEST_CASE("uploads: nor does the mask of later keys grow with the square where a model is not causal") {
  const char* const scheme = "cdape(none, width=3, tril=always)";
  CHECK(bytes_sent(scheme, 96, false, false) <= 2 * bytes_sent(scheme, 48, false, false) + 64);
}

TEST_CASE("uploads: layers share tables and positions: four send what one does") {
  for (const std::string scheme : {"alibi", "sandwich", "fire", "transformer_xl", "dape(alibi)", "cdape(fire)"}) {
    CAPTURE(scheme);
    const auto sent = [&](index_t layers) { return counted(scheme, 48, false, true, layers).at("copy from cpu"); };
    const auto one = sent(1), four = sent(4);
    CHECK(four.launches == one.launches);
    CHECK(four.global_written == one.global_written);
  }
}

TEST_CASE("uploads: nothing is read back in a step, whatever the scheme: it can be recorded") {
  std::vector<std::string> all = schemes();
  all.insert(all.end(), {"fire(init_length=3)", "dape(fire)", "cdape(fire)"});
  for (const std::string& scheme : all) {
    CAPTURE(scheme);
    CHECK_FALSE(counted(scheme, 12, false).contains("copy to cpu"));
  }
}
