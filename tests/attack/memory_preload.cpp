// Loaded before a program (LD_PRELOAD): refuses the WHENCE_FAIL_ALLOCATION-th allocation after main has begun, and with
// WHENCE_FAIL_ALL every later one. operator new calls malloc. WHENCE_COUNT_ALLOCATIONS names a file for the number of
// allocations.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace {

std::atomic<long> asked{-1};  // -1: main has not begun
long refused = 0;             // 0: none
bool all_behind = false;
using Main = int (*)(int, char**, char**);
Main program = nullptr;

bool refuses() {
  if (asked.load() < 0) return false;
  const long number = ++asked;
  if (refused == 0 || (all_behind ? number < refused : number != refused)) return false;
  errno = ENOMEM;
  return true;
}

int counted(int argc, char** argv, char** environment) {
  if (const char* const which = std::getenv("WHENCE_FAIL_ALLOCATION")) refused = std::atol(which);
  all_behind = std::getenv("WHENCE_FAIL_ALL") != nullptr;
  alarm(10);  // ends a program that hangs
  asked = 0;
  const int code = program(argc, argv, environment);
  const long count = asked.exchange(-1);
  if (const char* const path = std::getenv("WHENCE_COUNT_ALLOCATIONS")) {
    const int file = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    dprintf(file, "%ld\n", count);
    close(file);
  }
  return code;
}

}  // namespace

extern "C" {

void* malloc(std::size_t bytes) { return refuses() ? nullptr : __libc_malloc(bytes); }
void* calloc(std::size_t count, std::size_t bytes) { return refuses() ? nullptr : __libc_calloc(count, bytes); }
void* realloc(void* block, std::size_t bytes) { return refuses() ? nullptr : __libc_realloc(block, bytes); }
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return refuses() ? nullptr : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  return refuses() || !(*block = __libc_memalign(alignment, bytes)) ? ENOMEM : 0;
}
void* mmap(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  if ((flags & MAP_ANONYMOUS) != 0 && refuses()) return MAP_FAILED;
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}

int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(), void (*end)(), void* stack) {
  program = main;
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  return reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"))(counted, argc, argv, init, fini, end, stack);
}

}  // extern "C"
