#include "tensor/cpu/system.h"

#include <algorithm>
#include <thread>

#if defined(__linux__) && !defined(WHENCE_PLAIN_SYSTEM)
#include <sched.h>
#include <sys/mman.h>

namespace whence {

int allowed_processors() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return std::max(CPU_COUNT(&allowed), 1);
  return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
}
void prefer_huge_pages(void* mapped, std::size_t bytes) { madvise(mapped, bytes, MADV_HUGEPAGE); }

}  // namespace whence
#else
namespace whence {

int allowed_processors() { return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1); }
void prefer_huge_pages(void*, std::size_t) {}

}  // namespace whence
#endif
