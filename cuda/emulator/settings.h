// How the emulator runs kernels: what a test or a reader may choose.
#pragma once

#include <cstddef>
#include <cstdint>

namespace whence::gpu::emulator {

struct Settings {
  // The order of threads between two barriers, of blocks, and of indices. 0: ascending. 1: descending. Any other
  // number: a random order of its own, the same on every run. Results must not depend on it. Starts as
  // WHENCE_EMULATOR_ORDER of the environment, or 0.
  std::uint64_t order = 0;
  // Device memory in bytes. Starts as WHENCE_EMULATOR_MEMORY, such as 512M or 8G, or as 8 GiB. It may be lowered
  // later, and raised up to there.
  std::size_t memory = 0;
  // Shared memory that a block may ask for, in bytes: 163 KiB, as 8.0 has (the default), 99 KiB (8.6, 8.9, 12.0) or 227
  // KiB (9.0, 10.0). Starts as WHENCE_EMULATOR_SHARED, such as 99K.
  std::size_t shared = 0;
  // Whether sectors and conflicts of banks are counted (costs.h). Starts as true with WHENCE_EMULATOR_COUNTS=1.
  bool costs = false;
  // Not 0: the Error of a kernel is told by a later call, as on a GPU: by the next that waits, or by one of the next
  // three launches, which `late` chooses; and copies arrive when someone waits, or before what was submitted later runs
  // (late_line.h). Starts as WHENCE_EMULATOR_LATE.
  std::uint64_t late = 0;
  // Not 0: a seed by which the library of products has no fused kernel for half of the shapes. Starts as
  // WHENCE_EMULATOR_REFUSALS.
  std::uint64_t refusals = 0;
  // Whether a product and a sum that follow each other are rounded once (counted.h). Starts as true with
  // WHENCE_EMULATOR_FMA=1.
  bool fused = false;
  // Nothing is computed: launches, products and copies are checked and counted as ever, device memory is never touched,
  // and every number read from it is 0. So what the host does in a step of any model can be counted, and timed, here.
  // What is made meanwhile has no numbers afterwards. Starts as true with WHENCE_EMULATOR_DRY=1.
  bool dry = false;
};

// What launches go by from now on.
Settings& settings();

}  // namespace whence::gpu::emulator
