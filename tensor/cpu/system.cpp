#include "tensor/cpu/system.h"

#include <algorithm>
#include <chrono>
#include <thread>

#if defined(__linux__) && !defined(WHENCE_PLAIN_SYSTEM)
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <csignal>

namespace whence {

int allowed_processors() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return std::max(CPU_COUNT(&allowed), 1);
  return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
}
void prefer_huge_pages(void* mapped, std::size_t bytes) { madvise(mapped, bytes, MADV_HUGEPAGE); }
void die_with_parent() { prctl(PR_SET_PDEATHSIG, SIGKILL); }

static_assert(SharedWord::is_always_lock_free && sizeof(SharedWord) == 4);  // so a futex can wait for it
void sleep_unless_changed(SharedWord& word, std::uint32_t heard, double seconds) {
  const auto whole = static_cast<long>(seconds);
  const timespec patience{whole, static_cast<long>(1e9 * (seconds - static_cast<double>(whole)))};
  syscall(SYS_futex, &word, FUTEX_WAIT, heard, &patience, nullptr, 0);
}
void wake(SharedWord& word) { syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

}  // namespace whence
#else
namespace whence {

int allowed_processors() { return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1); }
void prefer_huge_pages(void*, std::size_t) {}
void die_with_parent() {}
void sleep_unless_changed(SharedWord& word, std::uint32_t heard, double seconds) {
  if (word == heard) std::this_thread::sleep_for(std::chrono::duration<double>(std::min(seconds, 50e-6)));
}
void wake(SharedWord&) {}

}  // namespace whence
#endif
