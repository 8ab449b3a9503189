// Settings of the emulator, for tests and readers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace whence::gpu::emulator {

// Each is initialised from its variable in the environment (cuda/README.md has a table of them), else as here.
struct Settings {
  // The order of threads between two barriers, of blocks, and of indices. 0: ascending. 1: descending. Any other
  // number: a random order, the same on every run. Results must not depend on it.
  std::uint64_t order = 0;
  // Device memory in bytes, 8 GiB. It may be lowered later, and raised up to its initial value.
  std::size_t memory = 0;
  // Shared memory that a block may use, in bytes: 163 KiB, as on 8.0, 99 KiB (8.6, 8.9, 12.0) or 227 KiB (9.0, 10.0).
  std::size_t shared = 0;
  // True counts sectors and bank conflicts (costs.h); WHENCE_EMULATOR_COUNTS=1 sets it.
  bool costs = false;
  // True: nothing is computed and device memory is never touched, while launches, products and copies are checked and
  // counted as usual; every number read back is 0, and tensors made meanwhile must not outlive the setting. So a step
  // of any model can be counted here, and its host time measured.
  bool dry = false;
  // The sums of tensor cores are truncated as on a GPU (matrices.cpp), not rounded one by one as f32.
  bool cut_sums = false;
  // Tiled attention takes f64, which no GPU does, so that its kernels' code is tested to more digits than their types
  // have. A block then has 1 MiB of shared memory.
  bool tiles_in_f64 = false;
};

// The settings of later launches.
Settings& settings();

}  // namespace whence::gpu::emulator
