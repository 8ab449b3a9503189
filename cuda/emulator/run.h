// The launch of a kernel under the emulator. While a graph is recorded it is recorded; otherwise it has run to
// its end when the call returns.
#pragma once

#include <functional>
#include <mutex>

#include "cuda/emulator/thread.h"

namespace whence::gpu::emulator {

// One at a time, of all host threads; by its number a random order is its own.
class OneLaunch {
  std::unique_lock<std::recursive_mutex> lock_;

 public:
  OneLaunch();
  ~OneLaunch();
  const std::uint64_t number;
};

// Runs all blocks in the order of settings(). When the emulator stops the kernel: Error with the kernel, the
// block, the thread and the line.
void execute(const LaunchFacts& facts, const Code& code);

// `work` now, or at every replay of the graph that is being recorded: then what `arguments` point at must still be in
// use. With Settings::late its Error is thrown by a later call.
struct Arguments {
  const void* first;
  std::size_t bytes;
};
void submit(const char* name, Arguments arguments, std::function<void()> work);

inline bool products_are_set_up = false;  // the library of products (blas.cpp), by the first one

template <class Body> void run(const LaunchFacts& facts, const Body& body) {
  require_launchable(facts, nullptr);
  submit(facts.kernel, {&body, sizeof body}, [facts, body] {
    execute(facts, {&body, [](const void* of, Thread& thread) { (*static_cast<const Body*>(of))(thread); }});
  });
  launched(facts);
}

}  // namespace whence::gpu::emulator
