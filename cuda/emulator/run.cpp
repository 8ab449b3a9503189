// Launches: blocks run one after the other in the chosen order, on the calling host thread, one launch at a time.
#include "cuda/emulator/run.h"

#include "cuda/emulator/arena.h"
#include "cuda/emulator/costs.h"
#include "cuda/emulator/settings.h"

namespace whence::gpu::emulator {

// These objects are never destroyed: see arena.cpp.
static BlockRun& the_block_run = *new BlockRun;

std::unique_lock<std::recursive_mutex> one_launch() {
  static std::recursive_mutex& mutex = *new std::recursive_mutex;
  return std::unique_lock(mutex);
}

void execute(const LaunchFacts& facts, const Code& code) {
  const auto one = one_launch();
  if (running.facts)
    fail("emulator", facts.kernel, " is launched inside ", running.facts->kernel, "; kernels cannot launch kernels");
  Counters asked;
  asked.launches = 1, asked.blocks = static_cast<std::uint64_t>(facts.blocks);
  asked.threads = asked.blocks * static_cast<std::uint64_t>(facts.threads), asked.shared_bytes = facts.shared_bytes;
  if (settings().dry) return count(facts.kernel, asked);
  prepare_shadows();
  Order order(settings().order);
  IndexOrder blocks(facts.blocks, order);
  running.facts = &facts, running.block_run = &the_block_run, running.now = asked;
  running.costs = settings().costs ? &Costs::instance() : nullptr;
  running.launch_first = take_segment() << lane_bits;
  const struct Ended {
    const LaunchFacts& facts;
    ~Ended() {
      running.facts = nullptr, running.last_kernel = facts.kernel;
      if (running.costs) running.costs->end_launch();
      count(facts.kernel, running.now);
    }
  } ended{facts};
  for (index_t k = 0; k < facts.blocks; ++k) {
    running.block = blocks.next();
    BlockMemory::instance().begin_block(facts.shared_bytes);
    the_block_run.run(code, facts.threads, order);
  }
}

}  // namespace whence::gpu::emulator
