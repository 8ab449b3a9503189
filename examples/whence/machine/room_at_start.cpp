// Checks that OpenBLAS finds address space at the start of a program: Note [Buffers of OpenBLAS] in tensor/cpu/blas.h.
// OpenBLAS takes a buffer per thread in its constructor, before main and before any constructor of ours. The program's
// .preinit_array, which Linux alone has, runs still earlier; neither getenv nor the heap can be used there.
#if defined(__linux__)
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "examples/whence/cli/run_main.h"

namespace whence {
namespace {

void require_room(int, char**, char** environment) {
  // OpenBLAS's threads: one per processor, or OMP_NUM_THREADS if that is less.
  cpu_set_t allowed;
  long threads = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  constexpr std::string_view name = "OMP_NUM_THREADS=";
  for (char** entry = environment; *entry; ++entry)
    if (std::string_view(*entry).starts_with(name))
      if (const long given = std::strtol(*entry + name.size(), nullptr, 10); given >= 1)
        threads = std::min(given, threads);
  threads = std::clamp(threads, 1L, 128L);
  const std::size_t mebibytes = static_cast<std::size_t>(threads) * 128 + 16;  // 16: for other libraries before main
  void* const room =
      mmap(nullptr, mebibytes << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room != MAP_FAILED && munmap(room, mebibytes << 20) == 0) return;
  dprintf(STDERR_FILENO,
      "whence: memory: no room for OpenBLAS, which takes %zu MiB of address space to start with %ld thread%s; a higher "
      "limit (ulimit -v)%s required\n",
      mebibytes, threads, threads == 1 ? "" : "s", threads == 1 ? "" : ", or OMP_NUM_THREADS=1,");
  _exit(static_cast<int>(ExitCode::out_of_memory));
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const first_of_all)(int, char**, char**) = require_room;

}  // namespace
}  // namespace whence
#endif
