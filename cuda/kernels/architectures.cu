// Which GPU generations this build has kernels for: nvcc knows, so this is the one function here that is no kernel.
#include "cuda/runtime/runtime.h"

namespace whence::gpu {

std::vector<int> compiled_architectures() {
  std::vector<int> architectures;
#ifdef __CUDA_ARCH_LIST__
  for (const int architecture : {__CUDA_ARCH_LIST__}) architectures.push_back(architecture / 10);
#endif
  return architectures;
}

}  // namespace whence::gpu
