// Fibers: stacks of their own that take turns on one host thread. A block's threads run on them.
#pragma once

#include <cstddef>

namespace whence::gpu::emulator {

// A fiber begins in its entry function, which never returns, when it is first switched to. A Fiber without an entry
// stands for the stack that a host thread already has.
class Fiber {
 public:
  using Entry = void (*)();

  Fiber() = default;
  explicit Fiber(Entry entry);  // Error when there is no memory for the stack
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Leaves `here`, which runs now, for `there`; returns when something switches back to `here`.
  static void change(Fiber& here, Fiber& there);
  // Forgets where the fiber was: it will begin in its entry again. Objects on its stack are not
  // destroyed. REQUIRES: it does not run.
  void restart();
  // At the start of an entry function.
  static void begun();

  // Whether the address lies in the guard page below the stack: the fiber has run out of stack.
  bool guards(const void* address) const;

 private:
  static void arrived(void* fake_stack);

  void* saved_ = nullptr;  // the stack pointer, or a ucontext_t
  Entry entry_ = nullptr;
  std::size_t stagger_ = 0;
  std::byte* memory_ = nullptr;   // guard page first, then the stack
  void* fake_stack_ = nullptr;    // AddressSanitizer's
  const void* bottom_ = nullptr;  // of the stack, as AddressSanitizer is to know it
  std::size_t size_ = 0;
};

}  // namespace whence::gpu::emulator
