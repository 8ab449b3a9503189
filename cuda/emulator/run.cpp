// Launches: blocks one after the other in the order that was chosen, on the calling host thread, one launch at a time.
#include "cuda/emulator/run.h"

#include <mutex>

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

void Launcher::run(const char* op, index_t indices, const IndexBody& body) {
  const LaunchFacts facts{op, 0, 0, 0};
  submit([facts, indices, copy = BodyCopy(body)] {
    const std::lock_guard lock(mutex);
    Order order(settings().order, ++launches);
    Turns turns(indices, order);
    for (index_t k = 0; k < indices; ++k) copy.call(turns.next());
    Counters counted;
    counted.launches = 1, counted.indices = static_cast<std::uint64_t>(indices);
    count(facts.kernel, counted);
    running.last_kernel = facts.kernel;
    if (launches % 64 == 0) watch_host_accesses();
  });
  gpu::launched(facts);
}

}  // namespace whence::gpu::emulator
