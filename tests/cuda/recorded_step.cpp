// Work recorded as a graph of a GPU: its constants, what is refused while recording, and its memory; device memory as the
// programs meet it, with the engine usable after it ran out.
#include "tensor/device/allocator.h"
#include "tensor/device/device_runtime.h"
#include "tests/support/device.h"

using namespace whence;
using namespace whence::test;

static const Device device = Device::cuda(0);

TEST_CASE("captured work: what comes from the CPU while recording is a constant of the graph") {
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
  const Tensor x = Tensor::ones({2}, DType::f32, device);
  const auto refused = [&](const std::function<void()>& inside) {
    return error_text([&] { (void)runtime_of(device).record(inside); });
  };
  CHECK(has(refused([&] { (void)raw::add(x, x).to_vector(); }), "being recorded"));
  CHECK(has(refused([&] { synchronise(device); }), "being recorded"));
  CHECK(has(refused([&] { (void)runtime_of(device).record([] {}); }), "a time"));
  CHECK(refused([&] { (void)dropout(x, 0.5, Stream()); }).find("at each replay; probability 0 required") !=
        std::string::npos);
  CHECK(dropout(x, 0.5, Stream()).numel() == 2);
  CHECK(has(refused([] { fail("test", "from inside"); }), "test: from"));
  CHECK(raw::add(x, x).to_vector() == std::vector<double>{2, 2});
  CHECK_THROWS_WITH_AS((void)runtime_of(Device::cpu()), doctest::Contains("runtime_of: cpu"), Error);
}

TEST_CASE("captured work: the memory of a graph is its own while it lives, and everyone's afterwards") {
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

TEST_CASE("device memory: copies to the device are as the numbers were when the copy was asked for") {
  const Tensor source = Tensor::full({3 << 20}, 1);
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

TEST_CASE("device memory: a GPU that is full says so in numbers, and goes on") {
  Allocator& allocator = memory_of(device);
  const std::size_t capacity = allocator.room().capacity, live = allocator.statistics().live;
  std::size_t asked = 0;
  try {
    (void)Tensor::empty({static_cast<index_t>(capacity)}, DType::f32, device);  // four times the capacity
  } catch (const OutOfMemory& error) {
    asked = error.numbers.asked;
    CHECK(error.numbers.capacity == capacity);
    CHECK_MESSAGE(has(error.what(), "GPU memory:"), error.what());
  }
  CHECK((capacity > 0 && asked == 4 * capacity));
  CHECK(sum(Tensor::ones({2}, DType::f32, device)).item() == 2);
  CHECK(allocator.statistics().live == live);
}
