// Memory of a small device: the error when it runs out, that the engine stays usable afterwards, and pools whose
// addresses do not change.
#include <set>

#include "tensor/device/allocator.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;

// A device of 16 MiB, or another size.
class SmallDevice final : public BlockSource {
 public:
  explicit SmallDevice(std::size_t bytes = 16 * mebibyte) : capacity(bytes) {}
  void* take(std::size_t bytes) override {
    if (used + bytes > capacity) return nullptr;
    used += bytes;
    return ::operator new(bytes);
  }
  void give_back(void* block, std::size_t bytes) noexcept override {
    used -= bytes;
    ++given_back;
    ::operator delete(block);
  }
  Room room() const override { return {capacity - used, capacity}; }
  const char* name() const override { return "GPU memory"; }
  bool host_may_read() const override { return false; }

  std::size_t capacity, used = 0;
  int given_back = 0;
};

template <class Run> OutOfMemory out_of_memory(const Run& run) {
  try {
    run();
  } catch (const OutOfMemory& error) { return error; }
  FAIL("no OutOfMemory");
  return OutOfMemory("", {});
}

}  // namespace

TEST_CASE("device memory: for a size that is missing no more cached blocks go back than it takes, the largest first") {
  SmallDevice device;
  Allocator allocator(device);
  std::vector<std::pair<void*, std::size_t>> blocks;
  for (const std::size_t size : {mebibyte, 4 * mebibyte, 2 * mebibyte, 7 * mebibyte})
    blocks.emplace_back(allocator.allocate(size), size);
  for (const auto& [memory, size] : blocks) allocator.deallocate(memory, size);
  void* three = allocator.allocate(3 * mebibyte);
  CHECK(device.given_back == 1);
  CHECK(device.used == 10 * mebibyte);
  void* nine = allocator.allocate(9 * mebibyte);  // 6 MiB are free, 4 and 2 MiB cached
  CHECK(device.given_back == 2);
  CHECK(allocator.statistics().reserved == device.used);
  allocator.deallocate(three, 3 * mebibyte);
  allocator.deallocate(nine, 9 * mebibyte);
  allocator.release_cached();
  CHECK(device.used == 0);
  CHECK(allocator.statistics().reserved == 0);
}

TEST_CASE("device memory: out of memory names request, free memory, largest holder and need; the engine goes on") {
  SmallDevice device;
  Allocator allocator(device);
  const Site here = Site::current();
  std::vector<std::pair<void*, std::size_t>> blocks;
  const auto take = [&](const char* op, std::size_t bytes) {
    const CallSite place(here, op);
    blocks.emplace_back(allocator.allocate(bytes), bytes);
  };
  take("softmax", 6 * mebibyte);
  take("linear", 4 * mebibyte);
  take("gelu", 2 * mebibyte);
  take(nullptr, mebibyte);
  take("norm", mebibyte / 2);
  take("rotary", mebibyte / 4);
  const OutOfMemory error = out_of_memory([&] { take("matmul", 5 * mebibyte); });
  const std::string text = error.what();
  says(text, {"5 MiB asked", "2.25 MiB free", "6 MiB by softmax", "512 KiB by norm", "2.75 MiB less"});
  CHECK_FALSE(has(text, "rotary"));  // five are named
  CHECK(error.numbers.asked == 5 * mebibyte);
  CHECK(error.numbers.free == 9 * mebibyte / 4);
  CHECK(error.numbers.capacity == 16 * mebibyte);
  CHECK(error.numbers.live == allocator.statistics().live);
  // Afterwards a smaller request fits, and so does the same one once enough was freed.
  take("matmul", 2 * mebibyte);
  allocator.deallocate(blocks[0].first, blocks[0].second);
  blocks.erase(blocks.begin());
  take("matmul", 5 * mebibyte);
  for (const auto& [block, bytes] : blocks) allocator.deallocate(block, bytes);
  CHECK(allocator.statistics().live == 0);
  CHECK(allocator.largest(5).empty());
}

TEST_CASE("device memory: a pool's blocks and those it may have read stay out of reach until it is released") {
  SmallDevice device;
  Allocator allocator(device);
  void* const outside = allocator.allocate(mebibyte);
  void* const spare = allocator.allocate(mebibyte);
  allocator.deallocate(spare, mebibyte);  // in the common cache

  const Allocator::Pool pool = allocator.open_pool();
  CHECK_THROWS_WITH_AS((void)allocator.open_pool(), doctest::Contains("open already"), Error);
  void* const first = allocator.allocate(mebibyte);
  CHECK(first != spare);
  allocator.deallocate(first, mebibyte);
  CHECK(allocator.allocate(mebibyte) == first);  // inside, the order is that of the graph, and its own memory is reused
  allocator.deallocate(outside, mebibyte);       // an input that the graph reads at every replay
  void* const inside = allocator.allocate(mebibyte);
  CHECK(inside != outside);
  allocator.deallocate(inside, mebibyte);
  allocator.close_pool();

  const std::set<void*> taken{first, inside, outside};
  CHECK(allocator.allocate(mebibyte) == spare);
  void* const fresh = allocator.allocate(mebibyte);
  CHECK_FALSE(taken.contains(fresh));
  allocator.deallocate(first, mebibyte);  // a result of the graph, freed before the graph is
  void* const another = allocator.allocate(mebibyte);
  CHECK_FALSE(taken.contains(another));
  allocator.release_cached();
  CHECK(device.given_back == 0);

  allocator.release_pool(pool);
  allocator.release_cached();
  CHECK(device.given_back == 3);
  for (void* block : {spare, fresh, another}) allocator.deallocate(block, mebibyte);
  CHECK(allocator.statistics().live == 0);
}

TEST_CASE("device memory: while a pool is open nothing is given back, and out of memory is reported") {
  SmallDevice device;
  Allocator allocator(device);
  allocator.deallocate(allocator.allocate(10 * mebibyte), 10 * mebibyte);
  const Allocator::Pool pool = allocator.open_pool();
  (void)out_of_memory([&] { (void)allocator.allocate(8 * mebibyte); });
  CHECK(device.given_back == 0);
  allocator.release_pool(pool);
  void* block = allocator.allocate(8 * mebibyte);
  CHECK(device.given_back == 1);
  allocator.deallocate(block, 8 * mebibyte);
}

TEST_CASE("device memory: the largest blocks are named by the op that made them, also on the CPU") {
  const Tensor x = Tensor::zeros({1 << 20});
  const std::size_t before = Allocator::cpu().largest(1)[0].bytes;
  const Site here = Site::current();
  {
    const CallSite place(here, "test_op");
    const Tensor large = Tensor::zeros({static_cast<index_t>(before / 4) + (1 << 20)});
    const LiveBlock block = Allocator::cpu().largest(1)[0];
    CHECK(block.bytes == (before / 4 + (1 << 20)) * 4);
    CHECK(std::string(block.op) == "test_op");
    CHECK(block.site.line() == here.line());
  }
  CHECK(Allocator::cpu().largest(1)[0].bytes == before);
}

TEST_CASE("a refused block leaves the allocator as it was, whichever it is, in a pool or not") {
  for (const bool in_pool : {false, true}) {
    for (int given = 0; given < 5; ++given) {
      constexpr std::size_t bytes = std::size_t{70} << 10;
      SmallDevice device(static_cast<std::size_t>(given) * Allocator::block_size(bytes));
      Allocator allocator(device);
      const Allocator::Pool pool = in_pool ? allocator.open_pool() : 0;
      std::vector<void*> held;
      CHECK_THROWS_AS(while (true) held.push_back(allocator.allocate(bytes)), OutOfMemory);
      CHECK(static_cast<int>(held.size()) == given);
      CHECK(allocator.statistics().live == held.size() * Allocator::block_size(bytes));
      CHECK(allocator.largest(9).size() == held.size());
      for (void* block : held) allocator.deallocate(block, bytes);
      CHECK(allocator.statistics().live == 0);
      if (in_pool) allocator.close_pool(), allocator.release_pool(pool);
      allocator.release_cached();
      CHECK(allocator.statistics().reserved == 0);
    }
  }
}
