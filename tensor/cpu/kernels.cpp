// The one object of the CPU's kernels.
#include "tensor/cpu/kernels.h"

namespace whence {

Kernels& cpu_kernels() {
  static CpuKernels kernels;
  return kernels;
}

}  // namespace whence
