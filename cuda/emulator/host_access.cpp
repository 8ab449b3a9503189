// Host code that touches device memory is caught at the first byte, because the addresses that it has are never mapped.
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "cuda/emulator/arena.h"
#include "cuda/emulator/block_run.h"
#include "tensor/error.h"

namespace whence::gpu::emulator {
namespace {

struct sigaction before {};  // the handler that is next

// A line of text built without heap memory, which a signal handler must not allocate.
class Line {
 public:
  Line& operator<<(const char* text) {
    for (; *text && size_ < text_.size(); ++text) text_[size_++] = *text;
    return *this;
  }
  Line& operator<<(std::size_t number) {
    std::array<char, 24> digits{};
    std::size_t at = digits.size() - 1;
    do digits[--at] = static_cast<char>('0' + number % 10), number /= 10;
    while (number > 0);
    return *this << &digits[at];
  }
  void write_out() const { static_cast<void>(!write(STDERR_FILENO, text_.data(), size_)); }

 private:
  std::array<char, 1024> text_{};
  std::size_t size_ = 0;
};

bool was_writing(const void* context) {
#ifdef __x86_64__
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
  static_cast<void>(context);
  return false;
#endif
}

void report_host_access(const void* address, bool writing) {
  Line line;
  if (const Site* site = CallSite::current()) {
    const char* const slash = std::strrchr(site->file_name(), '/');
    line << (slash ? slash + 1 : site->file_name()) << ":" << static_cast<std::size_t>(site->line()) << ": ";
  }
  if (const char* op = CallSite::op()) line << op << ": ";
  std::size_t offset = 0, bytes = 0;
  line << "host code " << (writing ? "wrote" : "read") << " device memory";
  if (Arena::instance().find_block(address, &offset, &bytes))
    line << ", " << offset << " bytes into a block of " << bytes;
  if (running.last_kernel) line << "; the last kernel was " << running.last_kernel;
  line << "; numbers of cuda:0 must be copied first; use to_vector(), item() or raw::to_device()\n";
  line.write_out();
}

void report_stack(const char* kernel) {
  Line line;
  line << (kernel ? kernel : "kernel") << ": thread " << static_cast<std::size_t>(running.thread) << " of block "
       << static_cast<std::size_t>(running.block)
       << ": its stack is full; kernels need smaller arrays and no recursion\n";
  line.write_out();
}

// Reports the access and restores the previous handler: the instruction runs again and reaches that handler.
void on_fault(int signal, siginfo_t* info, void* context) {
  if (Arena::instance().contains(info->si_addr))
    report_host_access(info->si_addr, was_writing(context));
  else if (running.facts && running.block_run->on_guard_page(info->si_addr))
    report_stack(running.facts->kernel);
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
