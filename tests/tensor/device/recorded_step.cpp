// Work recorded once and replayed: the same numbers as when called every time, on all devices of the build; refusals
// while recording; and device memory as the programs meet it, with the engine usable after it ran out. On a build
// without a GPU the CPU's part runs.
#include "tensor/device/device_runtime.h"

#include "nn/training/optim.h"
#include "nn/transformer.h"
#include "tensor/device/allocator.h"
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

TEST_CASE("captured work: what comes from the CPU while recording is a constant of the graph") {
  if (!has_cuda()) return;
  const Device device = Device::cuda(0);
  const Tensor input = Tensor::zeros({2}, DType::f32, device);
  RecordedStep work(device, [&] {
    return std::vector<Tensor>{raw::add(input, on_device(Tensor::of({1, 2}, {2}), device))};
  });
  for (int step = 0; step < 4; ++step) {
    raw::copy_into(on_device(Tensor::full({2}, step), device), input);
    CHECK(work.run()[0].to_vector() == std::vector<double>{1.0 + step, 2.0 + step});
  }
}

TEST_CASE("captured work: reading, waiting and recording inside are refused, and the engine goes on") {
  if (!has_cuda()) return;
  const Device device = Device::cuda(0);
  const Tensor x = Tensor::ones({2}, DType::f32, device);
  const auto refused = [&](const std::function<void()>& inside) {
    return error_text([&] { (void)runtime_of(device).record(inside); });
  };
  CHECK(refused([&] { (void)raw::add(x, x).to_vector(); }).find("work is being recorded") != std::string::npos);
  CHECK(refused([&] { synchronise(device); }).find("work is being recorded") != std::string::npos);
  CHECK(refused([&] { (void)runtime_of(device).record([] {}); }).find("one at a time required") != std::string::npos);
  CHECK(refused([&] { (void)dropout(x, 0.5, Stream()); }).find("at each replay; probability 0 required") !=
        std::string::npos);
  CHECK(dropout(x, 0.5, Stream()).numel() == 2);
  CHECK(refused([] { fail("test", "from inside"); }) == "test: from inside");
  CHECK(raw::add(x, x).to_vector() == std::vector<double>{2, 2});
  CHECK_THROWS_WITH_AS((void)runtime_of(Device::cpu()), doctest::Contains("runtime_of: cpu given"), Error);
}

TEST_CASE("captured work: the memory of a graph is its own while it lives, and everyone's afterwards") {
  if (!has_cuda()) return;
  const Device device = Device::cuda(0);
  Allocator& allocator = memory_of(device);
  const Tensor x = Tensor::full({64}, 3, DType::f32, device);
  const std::size_t live = allocator.statistics().live;
  {
    RecordedStep work(device, [&] {
      const Tensor kept_inside = raw::add(x, x);  // freed inside: the graph writes it at every replay
      return std::vector<Tensor>{raw::add(kept_inside, x)};
    });
    for (int step = 0; step < 3; ++step) {
      CHECK(work.run()[0].to_vector() == std::vector<double>(64, 9));
      const Tensor beside = Tensor::full({64}, 5, DType::f32, device);
      (void)work.run();
      CHECK(beside.to_vector() == std::vector<double>(64, 5));
    }
  }
  CHECK(allocator.statistics().live == live);
}

TEST_CASE("device memory: a GPU that is full says so in numbers, and goes on") {
  if (!has_cuda()) return;
  const Device device = Device::cuda(0);
  Allocator& allocator = memory_of(device);
  const std::size_t capacity = allocator.room().capacity, live = allocator.statistics().live;
  REQUIRE(capacity > 0);
  const Tensor held = Tensor::empty({1 << 18}, DType::f32, device);
  bool refused = false;
  try {
    (void)Tensor::empty({static_cast<index_t>(capacity)}, DType::f32, device);  // four times the capacity
  } catch (const OutOfMemory& error) {
    refused = true;
    const std::string text = error.what();
    CHECK_MESSAGE(text.find("out of GPU memory: ") != std::string::npos, text);
    CHECK_MESSAGE(text.find(", the largest: ") != std::string::npos, text);
    CHECK_MESSAGE(text.find(" less in use required; ") != std::string::npos, text);
    CHECK(error.numbers.asked == 4 * capacity);
    CHECK(error.numbers.capacity == capacity);
    CHECK(error.numbers.live >= held.storage().size());
  }
  CHECK(refused);
  CHECK(raw::add(Tensor::ones({2}, DType::f32, device), Tensor::ones({2}, DType::f32, device)).to_vector() ==
        std::vector<double>{2, 2});
  CHECK(allocator.statistics().live == live + Allocator::block_size(held.storage().size()));
}

TEST_CASE("device memory: copies to the device are as the numbers were when the copy was asked for") {
  if (!has_cuda()) return;
  const Device device = Device::cuda(0);
  const Tensor source = Tensor::full({3 << 20}, 1);  // more than one staging buffer
  std::vector<Tensor> copies;
  for (int k = 1; k <= 3; ++k) {
    raw::copy_into(Tensor::full({3 << 20}, k), source);
    copies.push_back(on_device(source, device));
  }
  for (int k = 1; k <= 3; ++k) {
    const std::vector<double> back = copies[static_cast<std::size_t>(k - 1)].to_vector();
    CHECK(std::all_of(back.begin(), back.end(), [&](double number) { return number == k; }));
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
