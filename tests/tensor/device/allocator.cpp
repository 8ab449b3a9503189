// The caching allocator: its counters, reuse, size classes and large blocks; and the sentinels around storages.
#include "tensor/device/allocator.h"

#include <sys/resource.h>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tests/support/programs.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

TEST_CASE("blocks are large enough, not wasteful, and sizes that share a block are interchangeable") {
  std::size_t before = 0;
  for (std::size_t bytes = 0; bytes < 70000; ++bytes) {
    const std::size_t block = Allocator::block_size(bytes);
    REQUIRE(block >= bytes);
    REQUIRE(block % 64 == 0);
    REQUIRE(block >= before);                        // grows with the request
    REQUIRE(Allocator::block_size(block) == block);  // a block is its own size
    REQUIRE(static_cast<double>(block) <= static_cast<double>(bytes) * 1.25 + 64);
    before = block;
  }
  for (std::size_t bytes = 1000; bytes < (std::size_t{1} << 45); bytes += bytes / 7) {
    CHECK(Allocator::block_size(bytes) >= bytes);
    // From 64 MiB on a block is at most a sixteenth too large, not a quarter.
    const double most = bytes > (std::size_t{1} << 26) ? 17.0 / 16 : 1.25;
    CHECK(static_cast<double>(Allocator::block_size(bytes)) <= most * static_cast<double>(bytes));
    CHECK(Allocator::block_size(Allocator::block_size(bytes)) == Allocator::block_size(bytes));
  }
}

TEST_CASE("live, peak and reserved count blocks; freed blocks are used again") {
  Allocator& allocator = Allocator::cpu();
  for (const std::size_t bytes :
      {std::size_t{100}, std::size_t{5000}, std::size_t{3} << 20}) {  // the last is mapped with huge pages
    allocator.release_cached();
    allocator.reset_peak();
    const MemoryStatistics before = allocator.statistics();
    const std::size_t block = Allocator::block_size(bytes);
    void* first = allocator.allocate(bytes);
    void* second = allocator.allocate(bytes);
    std::memset(first, 1, bytes);
    std::memset(second, 2, bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(first) % 64 == 0);
    CHECK(allocator.statistics().live == before.live + 2 * block);
    CHECK(allocator.statistics().peak == before.live + 2 * block);
    CHECK(allocator.statistics().reserved == before.reserved + 2 * block);
    allocator.deallocate(second, bytes);
    CHECK(allocator.statistics().live == before.live + block);
    CHECK(allocator.statistics().peak == before.live + 2 * block);
    CHECK(allocator.allocate(bytes) == second);
    CHECK(allocator.statistics().reserved == before.reserved + 2 * block);
    allocator.deallocate(second, bytes);
    allocator.deallocate(first, bytes);
    allocator.reset_peak();
    CHECK(allocator.statistics().peak == before.live);
    allocator.release_cached();
    CHECK(allocator.statistics().reserved == before.reserved);
  }
}

TEST_CASE("what no machine has is refused with its number") {
  const std::string said = error_text([] { (void)Allocator::cpu().allocate(std::size_t{1} << 61); });
  CHECK_MESSAGE(has(said, "allocate: 2305843009213693952 bytes"), said);
}

TEST_CASE("sentinels tell when a kernel wrote past its output") {
  const Guards guards;
  const Tensor x = Tensor::zeros({10});
  CHECK(x.storage().guards_intact());
  float* data = x.data<float>();
  const float saved = data[10];
  data[10] = 1;
  CHECK_FALSE(x.storage().guards_intact());
  data[10] = saved;
  CHECK(x.storage().guards_intact());
  data[-1] = 1;
  CHECK_FALSE(x.storage().guards_intact());
}

#ifndef WHENCE_SANITIZED
// A separate process, which the case below starts: it uses up all its memory, and a fork of this process could inherit
// locks that its other threads hold.
TEST_CASE("a process without memory gives back what it holds" * doctest::skip()) {
  struct Held {
    void* block;
    std::size_t bytes;
  };
  std::vector<Held> outside, inside;
  outside.reserve(2000), inside.reserve(2000);
  Allocator& allocator = Allocator::cpu();
  const auto take = [&](std::vector<Held>& held) {
    for (const std::size_t bytes : {std::size_t{64}, std::size_t{5000}, std::size_t{100} << 10})
      for (int k = 0; k < 300; ++k) held.push_back({allocator.allocate(bytes), bytes});
  };
  take(outside);
  const Allocator::Pool pool = allocator.open_pool();
  take(inside);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_AS, &none);
  for (std::size_t bytes = std::size_t{1} << 20; bytes >= 16; bytes /= 2)
    while (std::malloc(bytes)) {}
  for (const std::vector<Held>& held : {std::cref(outside), std::cref(inside)})
    for (const Held& each : held) allocator.deallocate(each.block, each.bytes);
  allocator.close_pool();
  allocator.release_pool(pool);
  _exit(42);
}

TEST_CASE("giving back needs no memory: common blocks, those of a pool, and those freed while one is open") {
  RunningProgram without({"--no-skip", "--test-case=a process without memory*"}, "/proc/self/exe");
  const Outcome ended = without.finish();
  CHECK_MESSAGE(ended.code == 42, ended.out);
}
#endif
