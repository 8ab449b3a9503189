#include "tensor/cpu/kernels.h"

namespace whence {

Kernels& cpu_kernels() {
  static CpuKernels kernels;
  return kernels;
}

}  // namespace whence
