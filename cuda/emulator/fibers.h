// Fibers: separate stacks that run in turn on one host thread. A block's threads run on them.
#pragma once

#include <cstddef>

namespace whence::gpu::emulator {

// A fiber starts in its entry function, which never returns, at the first switch to it. A Fiber without an entry
// represents the host thread's existing stack.
class Fiber {
 public:
  using Entry = void (*)();

  Fiber() = default;
  explicit Fiber(Entry entry);  // throws Error if there is no memory for the stack
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Switches from `here`, the running fiber, to `there`; returns when something switches back to `here`.
  static void change(Fiber& here, Fiber& there);
  // Resets the fiber: it will start in its entry again. Objects on its stack are not destroyed. REQUIRES: it does not
  // run.
  void restart();
  // REQUIRES: called at the start of an entry function.
  static void begun();

 private:
  static void arrived(void* fake_stack);

  void* saved_ = nullptr;  // the stack pointer, or a ucontext_t
  Entry entry_ = nullptr;
  std::size_t stagger_ = 0;
  std::byte* memory_ = nullptr;   // guard page first, then the stack
  void* fake_stack_ = nullptr;    // AddressSanitizer's
  const void* bottom_ = nullptr;  // of the stack, for AddressSanitizer
  std::size_t size_ = 0;
};

}  // namespace whence::gpu::emulator
