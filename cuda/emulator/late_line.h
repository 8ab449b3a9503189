// The emulated stream as the Line of cuda/runtime/staging.h. With Settings::late it delivers as late as a GPU may: when
// the host waits, or before later work runs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace whence::gpu::emulator {

struct LateLine {
  using Mark = std::uint64_t;  // number of earlier sends
  static char* pinned(std::size_t bytes) { return new char[bytes]; }
  static void send(const char* from, char* to, std::size_t bytes);
  static void mark(Mark& sent);
  static void wait(const Mark& sent);
};
void deliver_all();  // everything sent so far

}  // namespace whence::gpu::emulator
