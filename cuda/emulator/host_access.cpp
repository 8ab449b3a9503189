// Host code that touches device memory is caught at the first byte, because the addresses that it has are never mapped.
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>

#include "cuda/emulator/arena.h"
#include "cuda/emulator/block_run.h"
#include "tensor/error.h"

namespace whence::gpu::emulator {
namespace {

struct sigaction before {};  // the handler that is next

const char* access_of([[maybe_unused]] const void* context) {
#ifdef __x86_64__
  return static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2 ? "wrote" : "read";
#else
  return "touched";
#endif
}

// Reports the access and restores the previous handler: the instruction runs again and reaches that handler. dprintf
// takes no memory of the heap, which a handler must not.
void on_fault(int signal, siginfo_t* info, void* context) {
  if (Arena::instance().contains(info->si_addr)) {
    const Site site = CallSite::current() ? *CallSite::current() : Site();
    const char* const slash = std::strrchr(site.file_name(), '/');
    std::size_t offset = 0, bytes = 0;
    Arena::instance().find_block(info->si_addr, &offset, &bytes);
    dprintf(STDERR_FILENO,
        "%s:%u: %s: host code %s device memory, %zu bytes into a block of %zu; the last kernel was %s; numbers of "
        "cuda:0 must be copied first; use to_vector(), item() or raw::to_device()\n",
        slash ? slash + 1 : site.file_name(), static_cast<unsigned>(site.line()),
        CallSite::op() ? CallSite::op() : "no op", access_of(context), offset, bytes,
        running.last_kernel ? running.last_kernel : "none");
  } else if (running.facts && running.block_run->on_guard_page(info->si_addr)) {
    dprintf(STDERR_FILENO,
        "%s: thread %d of block %lld: its stack is full; kernels need smaller arrays and no recursion\n",
        running.facts->kernel, running.thread, static_cast<long long>(running.block));
  }
  // The second time, that handler has called this one again: the program ends here.
  static bool handed_on = false;
  if (handed_on) before = {}, before.sa_handler = SIG_DFL;
  handed_on = true;
  sigaction(signal, &before, nullptr);
}

}  // namespace

void watch_host_accesses() {
  static const bool has_stack = [] {
    stack_t given{};
    if (sigaltstack(nullptr, &given) == 0 && (given.ss_flags & SS_DISABLE) == 0) return true;
    static std::array<char, 65536> memory;
    given.ss_sp = memory.data(), given.ss_size = memory.size(), given.ss_flags = 0;
    return sigaltstack(&given, nullptr) == 0;
  }();
  struct sigaction present {};
  if (sigaction(SIGSEGV, nullptr, &present) != 0 || present.sa_sigaction == on_fault) return;
  before = present;
  struct sigaction ours {};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | (has_stack ? SA_ONSTACK : 0);
  sigemptyset(&ours.sa_mask);
  sigaction(SIGSEGV, &ours, nullptr);
}

}  // namespace whence::gpu::emulator
