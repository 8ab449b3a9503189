// The emulated stream, as cuda/runtime/staging.h sends by it. With Settings::late it delivers as late as a GPU may: when
// someone waits, or before what was submitted later runs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace whence::gpu::emulator {

struct LateLine {
  using Mark = std::uint64_t;  // how many sendings were begun before
  static char* pinned(std::size_t bytes) { return new char[bytes]; }
  static void send(const char* from, char* to, std::size_t bytes);
  static void mark(Mark& sent);
  static void wait(const Mark& sent);
};
void deliver_all();  // what was sent so far

}  // namespace whence::gpu::emulator
