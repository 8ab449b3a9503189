// Launches: blocks one after the other in the order that was chosen, on the calling host thread, one launch at a time.
#include "cuda/emulator/run.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "cuda/emulator/arena.h"
#include "cuda/emulator/costs.h"
#include "cuda/emulator/launcher.h"
#include "cuda/emulator/settings.h"
#include "tensor/backend.h"

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

std::vector<Bytes> numbers_of(const std::vector<Arena::Use>& uses) {
  const Arena& arena = Arena::instance();
  std::vector<Bytes> all;
  for (const Arena::Use& use : uses) all.emplace_back(arena.bytes_of(use), arena.bytes_of(use) + use.bytes);
  return all;
}
void put_back(const std::vector<Arena::Use>& uses, const std::vector<Bytes>& numbers) {
  for (std::size_t k = 0; k < uses.size(); ++k)
    std::memcpy(Arena::instance().bytes_of(uses[k]), numbers[k].data(), numbers[k].size());
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

// The same work again in another order. Where both end in other numbers: Error with one of the places.
void compare_orders(const char* op, const BodyCopy& body, index_t indices, const std::vector<Bytes>& before) {
  const std::vector<Bytes> first = numbers_of(body.uses());
  put_back(body.uses(), before);
  run_all(body, indices, settings().order == 1 ? 0 : 1);
  for (std::size_t k = 0; k < first.size(); ++k) {
    std::byte* const now = Arena::instance().bytes_of(body.uses()[k]);
    if (std::memcmp(first[k].data(), now, first[k].size()) == 0) continue;
    const auto at = std::mismatch(first[k].begin(), first[k].end(), now).first - first[k].begin();
    put_back(body.uses(), before);
    fail(op, "what it writes ", at, " bytes into ", bytes_text(first[k].size()),
        " depends on the order of its indices: ", writers(body, indices, now + at),
        "; an index that writes its own numbers, and reads none that another writes, is required");
  }
}

}  // namespace

void Launcher::run(const char* op, index_t indices, const IndexBody& body) {
  const LaunchFacts facts{op, 0, 0, 0};
  submit(op, {body.body, body.bytes}, [facts, indices, copy = BodyCopy(body)] {
    const std::lock_guard lock(mutex);
    ++launches;
    const std::vector<Bytes> before = numbers_of(copy.uses());
    run_all(copy, indices, settings().order);
    Counters counted;
    counted.launches = 1, counted.indices = static_cast<std::uint64_t>(indices);
    count(facts.kernel, counted);
    running.last_kernel = facts.kernel;
    if (launches % 64 == 0) watch_host_accesses();
    for (const Arena::Use& use : copy.uses())
      if (const auto wrong = Arena::instance().written_outside(use)) fail(facts.kernel, *wrong);
    if (indices > 1) compare_orders(facts.kernel, copy, indices, before);
  });
  gpu::launched(facts);
}

}  // namespace whence::gpu::emulator
