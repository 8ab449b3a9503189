// Registers the CPU's backend. The kernels are compiled for one instruction set (WHENCE_CPU, tensor/CMakeLists.txt);
// this file is compiled for every processor, so that it can report that one lacks the set.
#include "tensor/cpu/instruction_set.h"
#include "tensor/cpu/kernels.h"
#include "tensor/device/allocator.h"
#include "tensor/error.h"

namespace whence {

static Kernels& cpu_kernels() {
  static CpuKernels& kernels = []() -> CpuKernels& {
    constexpr InstructionSet built_for = InstructionSet::WHENCE_CPU_SET;
    if (!cpu_has(built_for))
      fail("kernels", "built for processors with ", to_string(built_for),
          ", which this one lacks; another build required; configure on this machine, or with -DWHENCE_CPU=plain");
    return *new CpuKernels;
  }();
  return kernels;
}
static const RegisteredBackend registered(Device::Kind::cpu, [](Device) -> Backend {
  return {&cpu_kernels(), &Allocator::cpu()};
});

}  // namespace whence
