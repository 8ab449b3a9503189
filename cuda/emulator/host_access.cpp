// Host code that touches device memory is caught at the first byte, because the addresses that it has are never mapped.
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "cuda/emulator/arena.h"
#include "cuda/emulator/running.h"
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
  }
  // The second time, that handler has called this one again: the program ends here.
  static bool handed_on = false;
  if (handed_on) before = {}, before.sa_handler = SIG_DFL;
  handed_on = true;
  sigaction(signal, &before, nullptr);
}

}  // namespace

void watch_host_accesses() {
  struct sigaction present {};
  if (sigaction(SIGSEGV, nullptr, &present) != 0 || present.sa_sigaction == on_fault) return;
  before = present;
  struct sigaction ours {};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGSEGV, &ours, nullptr);
}

}  // namespace whence::gpu::emulator
