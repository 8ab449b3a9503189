// Which of the kernels a program runs; WHENCE_KERNELS_OF: as one of them, compiled for that instruction set.
#include "tensor/cpu/kernels.h"

#include "tensor/cpu/instruction_set.h"

namespace whence {

#ifdef WHENCE_KERNELS_OF
JoinedKernels& WHENCE_KERNELS_OF();
JoinedKernels& WHENCE_KERNELS_OF() {
  static CpuKernels kernels;
  return kernels;
}
#else
#ifdef WHENCE_LEVELS
JoinedKernels& kernels_of_avx2();
JoinedKernels& kernels_of_avx512();
#endif

static JoinedKernels& chosen_kernels() {
#ifdef WHENCE_LEVELS
  if (instruction_set() == InstructionSet::avx512) return kernels_of_avx512();
  if (instruction_set() == InstructionSet::avx2) return kernels_of_avx2();
#endif
  static CpuKernels kernels;
  return kernels;
}

JoinedKernels& cpu_kernels() {
  static JoinedKernels& chosen = chosen_kernels();
  return chosen;
}
#endif

}  // namespace whence
