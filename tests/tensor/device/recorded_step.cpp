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

// loss and gradient of a small layer; `input` is read anew at every run
std::vector<Tensor> layer(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const Tensor loss = sum(square(gelu(linear(input, weight, bias))));
  std::vector<Tensor> results{loss};
  for (const Tensor& gradient : grad(loss, Tensor::ones({}, DType::f32, input.device()), {weight, bias}))
    results.push_back(gradient);
  return results;
}

}  // namespace

TEST_CASE("captured work: n runs are n calls, with new numbers in its inputs, and the same bits") {
  for (const Device device : devices()) {
    CAPTURE(to_string(device));
    const Tensor weight = requires_grad(on_device(random_contiguous({8, 4}, DType::f32, 1), device));
    const Tensor bias = requires_grad(on_device(random_contiguous({8}, DType::f32, 2), device));
    const Tensor input = Tensor::zeros({3, 4}, DType::f32, device);
    RecordedStep work(device, [&] { return layer(input, weight, bias); });
    for (std::uint64_t step = 0; step < 5; ++step) {
      CAPTURE(step);
      raw::copy_into(on_device(random_contiguous({3, 4}, DType::f32, 10 + step), device), input);
      const std::vector<Tensor>& got = work.run();
      const std::vector<Tensor> expected = layer(input, weight, bias);  // takes and frees memory outside the graph's
      REQUIRE(got.size() == 3);
      for (std::size_t k = 0; k < 3; ++k) CHECK(got[k].to_vector() == expected[k].to_vector());
      CHECK(work.recorded() == (!device.is_cpu() && step > 0));
    }
  }
}

TEST_CASE("captured work: steps that change their own state go on from where they are") {
  for (const Device device : devices()) {
    CAPTURE(to_string(device));
    const Tensor total = Tensor::zeros({4}, DType::f32, device), one = Tensor::ones({4}, DType::f32, device);
    RecordedStep work(device, [&] {
      raw::add_into(one, total);
      return std::vector<Tensor>{total};
    });
    for (int step = 1; step <= 4; ++step) CHECK(work.run()[0].to_vector() == std::vector<double>(4, step));
  }
}

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
