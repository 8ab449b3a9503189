// Launches: blocks one after the other in the order that was chosen, on the calling host thread, one launch at a time.
#include "cuda/emulator/run.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "cuda/emulator/arena.h"
#include "cuda/emulator/costs.h"
#include "cuda/emulator/launcher.h"
#include "cuda/emulator/settings.h"
#include "tensor/device/backend.h"

namespace whence::gpu::emulator {
namespace {

// Never destroyed: see arena.cpp.
std::recursive_mutex& mutex = *new std::recursive_mutex;
BlockRun& the_block_run = *new BlockRun;
std::uint64_t launches = 0;

}  // namespace

void execute(const LaunchFacts& facts, const Code& code) {
  const std::lock_guard lock(mutex);
  if (running.facts)
    fail("emulator", facts.kernel, " is launched inside ", running.facts->kernel, "; kernels cannot launch kernels");
  if (settings().dry) {
    Counters counted;
    counted.launches = 1, counted.blocks = static_cast<std::uint64_t>(facts.blocks);
    counted.threads = counted.blocks * static_cast<std::uint64_t>(facts.threads);
    counted.shared_bytes = facts.shared_bytes;
    return count(facts, counted);
  }
  prepare_shadows();
  const std::uint64_t seed = settings().order;
  Order order(seed, ++launches);
  Turns blocks(facts.blocks, order);
  running.facts = &facts, running.block_run = &the_block_run, running.now = {};
  running.fused = settings().fused;
  running.costs = settings().costs ? &Costs::instance() : nullptr;
  running.launch_first = take_segment() << lane_bits;
  const struct Ended {
    const LaunchFacts& facts;
    ~Ended() {
      running.facts = nullptr, running.last_kernel = facts.kernel;
      running.now.launches = 1;
      if (running.costs) running.costs->end_launch();
      running.now.shared_bytes = facts.shared_bytes;
      count(facts, running.now);
      if (launches % 64 == 0) watch_host_accesses();
    }
  } ended{facts};
  for (index_t k = 0; k < facts.blocks; ++k) {
    running.block = blocks.next();
    BlockMemory::instance().begin_block(facts.shared_bytes);
    the_block_run.run(code, facts.threads, order);
    ++running.now.blocks;
    running.now.threads += static_cast<std::uint64_t>(facts.threads);
  }
}

namespace {

using Bytes = std::vector<std::byte>;

void run_all(const BodyCopy& body, index_t indices, std::uint64_t seed) {
  Order order(seed, launches);
  Turns turns(indices, order);
  for (index_t k = 0; k < indices; ++k) body.call(turns.next());
}

std::byte* memory_of(const Arena::Use& use) { return Arena::instance().bytes_of(use); }
std::vector<Bytes> numbers_of(const std::vector<Arena::Use>& uses) {
  std::vector<Bytes> all;
  for (const Arena::Use& use : uses) all.emplace_back(memory_of(use), memory_of(use) + use.bytes);
  return all;
}
void put_back(const std::vector<Arena::Use>& uses, const std::vector<Bytes>& numbers) {
  for (std::size_t k = 0; k < uses.size(); ++k) std::memcpy(memory_of(uses[k]), numbers[k].data(), numbers[k].size());
}
bool holds(const Arena::Use& use, const Bytes& numbers) {
  return std::memcmp(memory_of(use), numbers.data(), numbers.size()) == 0;
}

// "index 3 and 17 write it": who changes one byte, whatever it was.
std::string writers(const BodyCopy& body, index_t indices, std::byte* byte) {
  std::string text;
  int found = 0;
  for (index_t i = 0; i < indices && found < 2; ++i) {
    const std::byte before = *byte;
    bool writes = false;
    for (const std::byte other : {std::byte{0x55}, std::byte{0xAA}}) {
      *byte = other;
      body.call(i);
      writes |= *byte != other;
    }
    *byte = before;
    if (writes) text += to_text(found++ == 0 ? "index " : " and ", i);
  }
  return text + (found < 2 ? " writes it" : " write it");
}

using Guards = std::vector<Arena::Guard>;
void fill(const Guards& guards, std::byte value) {
  for (const Arena::Guard& guard : guards) std::fill_n(guard.first, guard.bytes, value);
}

void require_untouched(const char* op, const Guards& guards) {
  for (const Arena::Guard& guard : guards) {
    if (std::memcmp(guard.first, guard.first + 1, guard.bytes - 1) == 0 && *guard.first == std::byte{0xFF}) continue;
    std::byte* const written =
        std::find_if(guard.first, guard.first + guard.bytes, [](std::byte byte) { return byte != std::byte{0xFF}; });
    fill(guards, std::byte{0xFF});
    const std::byte* const tensor = memory_of(guard.of);
    const auto distance = guard.behind ? written - (tensor + guard.of.bytes) : tensor - written;
    fail(op, "writes ", distance, guard.behind ? " bytes behind" : " bytes before", " a tensor of ", guard.of.bytes,
        " bytes");
  }
}

// The same work again in another order, and with other bytes next to its tensors. Where it then ends in other numbers:
// Error with one of the places.
void compare_orders(
    const char* op, const BodyCopy& body, index_t indices, const std::vector<Bytes>& before, const Guards& guards) {
  const std::vector<Arena::Use>& uses = body.uses();
  std::vector<Bytes> first(uses.size());  // empty where the first run changed nothing
  for (std::size_t k = 0; k < uses.size(); ++k) {
    if (holds(uses[k], before[k])) continue;
    first[k].assign(memory_of(uses[k]), memory_of(uses[k]) + uses[k].bytes);
    std::memcpy(memory_of(uses[k]), before[k].data(), before[k].size());
  }
  // Returns the first tensor that ends in other numbers; uses.size(): none does.
  const auto run_again = [&](std::byte next_to_them) {
    fill(guards, next_to_them);
    run_all(body, indices, settings().order == 1 ? 0 : 1);
    fill(guards, std::byte{0xFF});
    std::size_t k = 0;
    while (k < uses.size() && holds(uses[k], first[k].empty() ? before[k] : first[k])) ++k;
    return k;
  };
  const std::size_t wrong = run_again(std::byte{0});
  if (wrong == uses.size()) return;
  std::byte* const memory = memory_of(uses[wrong]);
  const Bytes& expected = first[wrong].empty() ? before[wrong] : first[wrong];
  const auto at = std::mismatch(expected.begin(), expected.end(), memory).second - memory;
  put_back(uses, before);
  const bool by_order = run_again(std::byte{0xFF}) < uses.size();
  put_back(uses, before);
  fail(op, "what it writes ", at, " bytes into ", bytes_text(uses[wrong].bytes), " depends on ",
      by_order ? "the order of its indices: " : "bytes next to its tensors: ", writers(body, indices, memory + at),
      by_order ? "; an index that writes its own numbers, and reads none that another writes, is required"
               : "; an index that reads inside of its tensors is required");
}

}  // namespace

void Launcher::run(const char* op, index_t indices, const IndexBody& body) {
  const LaunchFacts facts{op, 0, 0, 0};
  submit(op, {body.body, body.bytes}, [facts, indices, copy = BodyCopy(body)] {
    const std::lock_guard lock(mutex);
    ++launches;
    Counters counted;
    counted.launches = 1, counted.indices = static_cast<std::uint64_t>(indices);
    count(facts.kernel, counted);
    if (settings().dry) return;
    const std::vector<Bytes> before = numbers_of(copy.uses());
    run_all(copy, indices, settings().order);
    running.last_kernel = facts.kernel;
    if (launches % 64 == 0) watch_host_accesses();
    const Guards guards = Arena::instance().guards_of(copy.uses());
    require_untouched(facts.kernel, guards);
    compare_orders(facts.kernel, copy, indices, before, guards);
  });
  gpu::launched(facts);
}

}  // namespace whence::gpu::emulator
