// Subnormal numbers: smaller than 2^-126 = 1.2e-38 in f32, than 2.2e-308 in f64. An instruction that reads or makes one
// is slow on many processors. Ops keep them. Training takes them for 0, because the gradients of a model that is nearly
// always right are full of them: they took most of the time of flip-flop with absolute positions at the paper's size.
// The losses and gradient norms that were compared are the same to the bit.
#pragma once

#include <cstdint>

namespace whence {

// Returns the calling thread's floating-point control register. 0 on a processor without a case here.
inline std::uint64_t float_control() {
#if defined(__x86_64__)
  return __builtin_ia32_stmxcsr();
#elif defined(__aarch64__)
  std::uint64_t control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return control;
#else
  return 0;
#endif
}

inline void set_float_control([[maybe_unused]] std::uint64_t control) {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(static_cast<std::uint32_t>(control));
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" : : "r"(control));
#endif
}

// Takes subnormal operands and results for 0 as long as it lives: in its thread, and in all threads of its thread's loops.
class SubnormalsAsZero {
 public:
  SubnormalsAsZero() { set_float_control(before_ | as_zero); }
  ~SubnormalsAsZero() { set_float_control(before_); }
  SubnormalsAsZero(const SubnormalsAsZero&) = delete;
  SubnormalsAsZero& operator=(const SubnormalsAsZero&) = delete;

 private:
#if defined(__aarch64__)
  static constexpr std::uint64_t as_zero = 1 << 24;  // FZ
#else
  static constexpr std::uint64_t as_zero = 0x8040;  // flush to zero, denormals are zero
#endif
  const std::uint64_t before_ = float_control();
};

}  // namespace whence
