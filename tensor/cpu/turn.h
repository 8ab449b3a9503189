// Waiting for another thread without sleeping yet: Note [Threads that wait] in tensor/cpu/threads.cpp.
#pragma once

#include <chrono>

namespace whence {

// About what it costs to wake a sleeping thread: so waiting never costs twice the better of turning and sleeping.
inline constexpr std::chrono::microseconds longest_turning{50};

// Turns until done() or for as long as is worth it. True when done.
template <class Done> bool turn_until(const Done& done) {
  const auto turn = [&] {
    for (int count = 0; count < 64; ++count) {
      if (done()) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    return false;
  };
  if (turn()) return true;
  const auto end = std::chrono::steady_clock::now() + longest_turning;
  while (std::chrono::steady_clock::now() < end)
    if (turn()) return true;
  return done();
}

}  // namespace whence
