// The thread that runs at this moment on the emulated device, with its block and its launch. Every memory
// access reads it, so it consists of plain members of one global object. One host thread at a time runs kernels
// (run.cpp).
#pragma once

#include <bit>
#include <cstdint>

#include "cuda/emulator/counters.h"
#include "cuda/runtime/runtime.h"
#include "tensor/error.h"

namespace whence::gpu::emulator {

class BlockRun;
class Costs;

inline constexpr int warp_size = 32, lane_bits = 5, most_warps = 32;

struct Running {
  const LaunchFacts* facts = nullptr;  // null: no kernel runs
  BlockRun* block_run = nullptr;
  Costs* costs = nullptr;  // null: accesses are not noted
  index_t block = 0;
  int thread = 0;  // in the block

  // Stamps name a thread's segment between two barriers; they only grow (shadow.h).
  std::uint64_t launch_first = 1;  // smaller stamps are of launches that have ended
  std::uint64_t block_first = 1;   // of blocks that have ended
  std::uint64_t stamp = 1;         // of the running thread

  Counters now;                       // of this launch
  const char* last_kernel = nullptr;  // of the launch that ended last
};
inline constinit Running running;

// Ends the launch with an Error: "op's place: kernel: kernel.cu:12: thread 3 of block 1: message".
[[noreturn]] void stop(const Site& at, const std::string& message);

// A place in the program in four bytes: its distance from a fixed object. 0: unknown.
static_assert(
    sizeof(Site) == sizeof(std::intptr_t), "std::source_location is one pointer to a constant of the program");
inline std::int32_t short_site(const Site& at) {
  return static_cast<std::int32_t>(std::bit_cast<std::intptr_t>(at) - reinterpret_cast<std::intptr_t>(&running));
}
inline Site long_site(std::int32_t distance) {
  return std::bit_cast<Site>(reinterpret_cast<std::intptr_t>(&running) + distance);
}

}  // namespace whence::gpu::emulator
