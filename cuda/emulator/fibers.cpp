// Stacks with a guard page, and the switch between them: a dozen instructions on x86-64, ucontext elsewhere.
#include "cuda/emulator/fibers.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>

#include "tensor/error.h"

// AddressSanitizer must know of every switch; null in a program without it.
extern "C" __attribute__((weak)) void __sanitizer_start_switch_fiber(
    void** fake_stack, const void* bottom, std::size_t size);
extern "C" __attribute__((weak)) void __sanitizer_finish_switch_fiber(
    void* fake_stack, const void** old_bottom, std::size_t* old_size);
extern "C" __attribute__((weak)) void __asan_unpoison_memory_region(const volatile void* address, std::size_t size);

#ifdef __x86_64__
// void whence_fiber_change(void** saved, void* next):
// saves the callee-saved registers, switches the stack, and returns into the other fiber.
asm(R"(
.text
.p2align 4
.type whence_fiber_change,@function
whence_fiber_change:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  retq
.size whence_fiber_change,.-whence_fiber_change
)");
extern "C" void whence_fiber_change(void** saved, void* next);
#endif

namespace whence::gpu::emulator {
namespace {

std::size_t page() {
  static const std::size_t size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

// Instrumented frames are several times larger.
std::size_t stack_size() { return __sanitizer_start_switch_fiber ? 512 * 1024 : 128 * 1024; }

// Stacks are whole pages apart, so their tops would compete for the same few cache lines: each begins a little lower
// than the last.
std::size_t next_stagger() {
  static std::size_t count = 0;
  return count++ * 5 % 64 * 64;
}

Fiber* left = nullptr;  // the fiber that was switched from

}  // namespace

Fiber::Fiber(Entry entry) : entry_(entry), stagger_(next_stagger()) {
  void* const memory =
      mmap(nullptr, page() + stack_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, page(), PROT_NONE) != 0)
    fail("emulator", "no memory for a stack of ", stack_size(), " bytes; free some, or use blocks of fewer threads");
  memory_ = static_cast<std::byte*>(memory);
  bottom_ = memory_ + page(), size_ = stack_size();
#ifndef __x86_64__
  saved_ = new ucontext_t;
#endif
  restart();
}

Fiber::~Fiber() {
  if (memory_) munmap(memory_, page() + stack_size());
#ifndef __x86_64__
  delete static_cast<ucontext_t*>(saved_);
#endif
}

void Fiber::restart() {
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(memory_ + page(), stack_size());
  fake_stack_ = nullptr;
#ifdef __x86_64__
  // The stack looks as if the fiber had left whence_fiber_change, called by the entry function's caller: six registers,
  // then the return address. Above it is the entry function's own return address, null; a function begins 8 bytes below
  // a multiple of 16.
  void** top = reinterpret_cast<void**>(memory_ + page() + stack_size() - stagger_);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry_);
  for (int kept = 0; kept < 6; ++kept) *--top = nullptr;
  saved_ = top;
#else
  ucontext_t& context = *static_cast<ucontext_t*>(saved_);
  getcontext(&context);
  context.uc_stack.ss_sp = memory_ + page();
  context.uc_stack.ss_size = stack_size();
  context.uc_link = nullptr;
  makecontext(&context, entry_, 0);
#endif
}

void Fiber::change(Fiber& here, Fiber& there) {
  left = &here;
  if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&here.fake_stack_, there.bottom_, there.size_);
#ifdef __x86_64__
  whence_fiber_change(&here.saved_, there.saved_);
#else
  ucontext_t thread_context;  // of the host thread's own stack
  if (!here.saved_) here.saved_ = &thread_context;
  swapcontext(static_cast<ucontext_t*>(here.saved_), static_cast<ucontext_t*>(there.saved_));
  if (here.saved_ == &thread_context) here.saved_ = nullptr;
#endif
  arrived(here.fake_stack_);
}

void Fiber::begun() { arrived(nullptr); }

// Tells AddressSanitizer that this fiber runs, and gets from it the bounds of the host thread's stack that it was
// switched to from.
void Fiber::arrived(void* fake_stack) {
  if (!__sanitizer_finish_switch_fiber) return;
  const void* bottom = nullptr;
  std::size_t size = 0;
  __sanitizer_finish_switch_fiber(fake_stack, &bottom, &size);
  if (!left->memory_) left->bottom_ = bottom, left->size_ = size;
}

}  // namespace whence::gpu::emulator
