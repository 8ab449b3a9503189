// The launch of a kernel under the emulator. While a graph is recorded it is recorded; otherwise it has run to
// its end when the call returns.
#pragma once

#include <cstring>
#include <functional>

#include "cuda/emulator/thread.h"

namespace whence::gpu::emulator {

// Runs all blocks in the order of settings(). When the emulator stops the kernel: Error with the kernel, the
// block, the thread and the line.
void execute(const LaunchFacts& facts, const Code& code);

// `work` now, or at every replay of the graph that is being recorded.
void submit(std::function<void()> work);

template <class Body> void run(const LaunchFacts& facts, const Body& body) {
  require_launchable(facts, nullptr);
  submit([facts, body] {
    execute(facts, {&body, [](const void* of, Thread& thread) { (*static_cast<const Body*>(of))(thread); }});
  });
  launched(facts);
}

}  // namespace whence::gpu::emulator
