// Work recorded once and replayed: the same numbers as when called every time, on all devices of the build. On a build
// without a GPU the CPU's part runs; cuda/recorded_step.cpp has what only a GPU does.
#include "tensor/device/device_runtime.h"

#include "nn/training/optim.h"
#include "nn/transformer.h"
#include "tests/support/device.h"

using namespace whence;
using namespace whence::test;

namespace {

std::vector<Device> devices() {
  std::vector<Device> all{Device::cpu()};
  if (cuda_facts().refusal.empty()) all.push_back(Device::cuda(0));
  return all;
}

}  // namespace

TEST_CASE("captured work: a training step of a model, replayed, has the losses of the same step called each time") {
  for (const Device device : devices()) {
    for (const char* scheme : {"rope", "cope(p_max=4)"}) {
      CAPTURE(to_string(device));
      CAPTURE(scheme);
      const auto losses = [&](bool captured) {
        Transformer model({.vocabulary = 11, .length = 6, .dim = 8, .layers = 1, .heads = 2, .scheme = scheme});
        model.initialise(3);
        model.to(device);
        Adam adam(model);
        const Tensor tokens = Tensor::zeros({2, 6}, DType::i64, device),
                     targets = Tensor::zeros({2, 6}, DType::i64, device);
        const auto step = [&] {
          adam.zero_gradients();
          const Tensor loss = cross_entropy_sum(model(tokens), targets);
          backward(loss);
          adam.launch();
          return std::vector<Tensor>{loss};
        };
        RecordedStep work(device, step);
        std::vector<double> found;
        for (std::uint64_t k = 0; k < 5; ++k) {
          CHECK(work.recorded() == (captured && !device.is_cpu() && k > 1));
          std::vector<double> numbers(12);
          for (std::size_t i = 0; i < 12; ++i) numbers[i] = Stream(9, "tokens", k).below(i, 11);
          raw::copy_into(on_device(Tensor::of(numbers, {2, 6}, DType::i64), device), tokens);
          raw::copy_into(on_device(Tensor::of(numbers, {2, 6}, DType::i64), device), targets);
          adam.prepare(1e-2, 1);
          found.push_back((captured ? work.run() : step())[0].item());
          CHECK(adam.finish().finite());
        }
        return found;
      };
      const std::vector<double> expected = losses(false), got = losses(true);
      CHECK(got == expected);
      CHECK(expected[4] != expected[0]);
    }
  }
}
