// Checks that OpenBLAS finds address space at the start of a program: Note [Buffers of OpenBLAS] in tensor/cpu/blas.h.
// OpenBLAS takes a buffer per thread in its constructor, before main and before any constructor of ours. The program's
// .preinit_array, which Linux alone has, runs still earlier; neither getenv nor the heap can be used there.
#if defined(__linux__)
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "examples/whence/cli/run_main.h"

namespace whence {
namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;
constexpr std::size_t buffer_bytes = 128 * mebibyte;
constexpr std::size_t beside_them = 16 * mebibyte;  // for other libraries before main
constexpr int most = 128;

void* map(std::size_t bytes) {
  return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

// Returns OpenBLAS's number of threads: one per processor, or OMP_NUM_THREADS if that is less.
int buffers_at_start(char** environment) {
  cpu_set_t allowed;
  int count = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  constexpr std::string_view name = "OMP_NUM_THREADS=";
  for (char** entry = environment; *entry; ++entry) {
    if (!std::string_view(*entry).starts_with(name)) continue;
    if (const long given = std::strtol(*entry + name.size(), nullptr, 10); given >= 1)
      count = static_cast<int>(std::min<long>(given, count));
  }
  return std::clamp(count, 1, most);
}

void require_room(int, char**, char** environment) {
  const int wanted = buffers_at_start(environment);
  std::array<void*, most> held{};
  int count = 0;
  for (; count < wanted; ++count)
    if ((held[static_cast<std::size_t>(count)] = map(buffer_bytes)) == MAP_FAILED) break;
  void* const beside = map(beside_them);
  for (int k = 0; k < count; ++k) munmap(held[static_cast<std::size_t>(k)], buffer_bytes);
  if (beside != MAP_FAILED) munmap(beside, beside_them);
  if (count == wanted && beside != MAP_FAILED) return;
  const std::size_t required = (static_cast<std::size_t>(wanted) * buffer_bytes + beside_them) / mebibyte;
  dprintf(STDERR_FILENO,
      "whence: memory: no room for OpenBLAS, which takes %zu MiB of address space to start with %d thread%s; a higher "
      "limit (ulimit -v)%s required\n",
      required, wanted, wanted == 1 ? "" : "s", wanted == 1 ? "" : ", or OMP_NUM_THREADS=1,");
  _exit(static_cast<int>(ExitCode::out_of_memory));
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const first_of_all)(int, char**, char**) = require_room;

}  // namespace
}  // namespace whence
#endif
