// The handler sets a flag and restores the default actions. It calls only what POSIX allows inside a handler.
#include "examples/whence/cli/interrupt.h"

#include <unistd.h>
#include <csignal>

#include <array>
#include <atomic>
#include <cerrno>
#include <string_view>

namespace whence {
namespace {

constexpr std::array<int, 4> stop_signals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

std::atomic<bool> requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a handler may only touch lock-free atomics");

extern "C" void on_stop_signal(int number) {
  const int saved_errno = errno;
  requested.store(true);
  // Restores the default action: a second signal ends the program even if the main loop hangs. SIGUSR1 does not: it is
  // a scheduler's warning before the time is up, and SIGTERM follows while the program may still be saving.
  struct sigaction standard = {}, ignored = {};
  standard.sa_handler = SIG_DFL, ignored.sa_handler = SIG_IGN;
  sigaction(SIGUSR1, &ignored, nullptr);
  for (const int signal : stop_signals)
    if (signal != SIGUSR1 && number != SIGUSR1) sigaction(signal, &standard, nullptr);
  constexpr std::string_view notice = "\nstopping after this step; once more to stop at once\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, notice.data(), notice.size());
  errno = saved_errno;
}

}  // namespace

void install_interrupt_handler() {
  requested.store(false);
  for (const int signal : stop_signals) {
    struct sigaction before = {};
    sigaction(signal, nullptr, &before);
    if (signal == SIGHUP && before.sa_handler == SIG_IGN) continue;
    struct sigaction action = {};
    action.sa_handler = on_stop_signal;
    action.sa_flags = SA_RESTART;  // finishes a write that the signal interrupts
    sigaction(signal, &action, nullptr);
  }
}

bool interrupt_requested() { return requested.load(std::memory_order_relaxed); }

void stop_if_interrupted(const char* work) {
  if (interrupt_requested()) throw Interrupted(work, ": stopped before it was done");
}

}  // namespace whence
