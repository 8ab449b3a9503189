// The cost of a run as counts: the emulated GPU has no clock. Its twin for a GPU is measure_gpu.cpp.
#include "cuda/emulator/counters.h"
#include "cuda/emulator/settings.h"
#include "cuda/ladder/ladder.h"

namespace whence::gpu::ladder {

Measured measure(const std::function<void()>& run) {
  const struct Counting {
    bool before = emulator::settings().costs;
    Counting() { emulator::settings().costs = true; }
    ~Counting() { emulator::settings().costs = before; }
  } counting;
  emulator::reset_counters();
  run();
  emulator::Counters all;
  for (const auto& entry : emulator::counters()) all += entry.second;
  return {{{Count::bytes, all.global_read + all.global_written}, {Count::sectors, all.sectors},
              {Count::requests, all.global_requests}, {Count::barriers, all.barriers}, {Count::shuffles, all.shuffles},
              {Count::arithmetic, all.arithmetic}, {Count::special, all.special + all.divisions},
              {Count::shared_bytes, all.shared_read + all.shared_written},
              {Count::shared_requests, all.shared_requests}, {Count::conflicts, all.wavefronts - all.least_wavefronts},
              {Count::on_tensor_cores, 2 * 16 * 8 * (16 * all.mma_16 + 8 * all.mma_8)}},
      0, 0};
}

}  // namespace whence::gpu::ladder
