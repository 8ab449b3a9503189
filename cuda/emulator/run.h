// The launch of a kernel under the emulator. While a graph is being recorded the launch is recorded; otherwise it has
// run to its end when the call returns.
#pragma once

#include <mutex>

#include "cuda/emulator/thread.h"

namespace whence::gpu::emulator {

// Held by the launch that runs: one at a time, over all host threads.
std::unique_lock<std::recursive_mutex> one_launch();

// Runs all blocks in the order of settings(). If the emulator stops the kernel: throws Error with the kernel, the
// block, the thread and the line.
void execute(const LaunchFacts& facts, const Code& code);

// Runs `work` now, or at every replay of the graph being recorded: then the blocks that `arguments` point at must still
// be in use.
struct Arguments {
  const void* first;
  std::size_t bytes;
};
void submit(const char* name, Arguments arguments, std::function<void()> work);

inline bool products_are_set_up = false;  // true after the first product (blas.cpp)

}  // namespace whence::gpu::emulator

namespace whence::gpu {

template <class Body> void start_kernel(const LaunchFacts& facts, const Body& body) {
  require_launchable(facts, nullptr);
  emulator::submit(facts.kernel, {&body, sizeof body},
      [facts, body] { emulator::execute(facts, [&body](Thread& thread) { body(thread); }); });
  launched(facts);
}

}  // namespace whence::gpu
