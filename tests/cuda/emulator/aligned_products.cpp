// Every product of a step of GPT-2 124M has extents of whole packs, forward and backward. The emulator counts those
// that have not; a GPU only shows them as time.
#include "cuda/emulator/settings.h"
#include "examples/whence/machine/models.h"
#include "nn/transformer.h"
#include "tensor/device/device_runtime.h"
#include "tests/support/device.h"

using namespace whence;
using namespace whence::test;

namespace {

// Products of a step with one layer: the other layers repeat them.
DeviceTraffic products_of_step(const std::string& scheme, DType dtype) {
  TransformerOptions options = named_model("gpt2-124m");
  options.layers = 1, options.scheme = scheme, options.executor = "reference";
  const With dry(gpu::emulator::settings().dry, true);
  Transformer model(options);
  model.to(dtype);
  model.to(Device::cuda(0));
  const Tensor tokens = Tensor::zeros({4, 512}, DType::i64, Device::cuda(0));
  const DeviceTraffic before = runtime_of(Device::cuda(0)).traffic();
  backward(cross_entropy_sum(model(tokens), tokens));
  const DeviceTraffic after = runtime_of(Device::cuda(0)).traffic();
  return {.products = after.products - before.products, .unaligned = after.unaligned - before.unaligned};
}

}  // namespace

TEST_CASE("emulator: no product of GPT-2 124M has an extent that is no whole number of packs") {
  for (const std::string scheme : {"absolute", "alibi", "cope", "dape(kerple)", "cdape(kerple)"})
    for (const DType dtype : {DType::bf16, DType::f32}) {
      INFO(scheme, ", dtype ", dtype);
      const DeviceTraffic step = products_of_step(scheme, dtype);
      CHECK(step.products.products >= 20);
      CHECK(step.unaligned.products == 0);
    }
}
