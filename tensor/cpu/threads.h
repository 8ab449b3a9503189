// The threads of tensor/parallel.h, and how one waits for another: Note [Threads that wait] in threads.cpp.
#pragma once

#include <chrono>

namespace whence {

int threads();                // in use; at first the number of cores, or OMP_NUM_THREADS
void set_threads(int count);  // Error unless 1 to 1024
// Returns the processors that this process may use; those of the machine on a system other than Linux, or with
// WHENCE_PLAIN_SYSTEM.
int allowed_processors();

// Spin for about one wake-up's time. Then waiting costs at most twice what the better of spinning and sleeping would.
inline constexpr std::chrono::microseconds longest_spin{50};

// Spins until done() or for longest_spin. Returns true if done.
template <class Done> bool spin_until(const Done& done) {
  const auto spin = [&] {
    for (int count = 0; count < 64; ++count) {
      if (done()) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    return false;
  };
  if (spin()) return true;
  const auto end = std::chrono::steady_clock::now() + longest_spin;
  while (std::chrono::steady_clock::now() < end)
    if (spin()) return true;
  return done();
}

}  // namespace whence
