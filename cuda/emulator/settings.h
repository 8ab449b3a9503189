// How the emulator runs kernels: what a test or a reader may choose.
#pragma once

#include <cstddef>
#include <cstdint>

namespace whence::gpu::emulator {

// Each starts as its variable in the environment says (cuda/README.md has a table of them), else as here.
struct Settings {
  // Of threads between two barriers, of blocks, and of indices. 0: ascending. 1: descending. Any other number: a random
  // order of its own, the same on every run. Results must not depend on it.
  std::uint64_t order = 0;
  // Device memory in bytes, 8 GiB. It may be lowered later, and raised up to what it was at first.
  std::size_t memory = 0;
  // Shared memory that a block may ask for, in bytes: 163 KiB, as 8.0 has, 99 KiB (8.6, 8.9, 12.0) or 227 KiB (9.0, 10.0).
  std::size_t shared = 0;
  // Whether sectors and conflicts of banks are counted (costs.h); with WHENCE_EMULATOR_COUNTS=1 they are.
  bool costs = false;
  // Not 0: the Error of a kernel is told by a later call, as on a GPU: by the next that waits, or by one of the next
  // three launches, which `late` chooses; and copies arrive when someone waits, or before what was submitted later runs
  // (late_line.h). A kernel's copy ahead then reads its source when its thread waits.
  std::uint64_t late = 0;
  // Not 0: a seed by which the library of products has no fused kernel for half of the shapes.
  std::uint64_t refusals = 0;
  // Nothing is computed and device memory is never touched, while launches, products and copies are checked and counted
  // as ever; every number read back is 0, and what is made meanwhile must not outlive it. So a step of any model can be
  // counted, and what its host does timed, here.
  bool dry = false;
  // The sums of tensor cores are cut as a GPU cuts them (matrices.cpp), not rounded one by one as f32.
  bool cut_sums = false;
  // Attention in tiles takes f64, which no GPU does: so the text of its kernels is held to more digits than their types
  // have. A block then has 1 MiB of shared memory.
  bool tiles_in_f64 = false;
};

// What launches go by from now on.
Settings& settings();

}  // namespace whence::gpu::emulator
