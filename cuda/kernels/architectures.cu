// Which GPU generations this build has kernels for: what it was configured with, and whether the GPU at hand is one of them. The GPU's driver
// is asked: machine code of 90a is for 9.0 alone, that of 80 for all of 8.x, and PTX of 80 for whatever comes later.
#include "cuda/runtime/runtime.h"

#ifdef __CUDACC__

namespace whence::gpu {
namespace {

__global__ void stands_for_all() {}  // every .cu file is compiled for the same generations

}  // namespace

std::string compiled_architectures() { return WHENCE_CUDA_ARCHITECTURES; }

int find_kernels() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, stands_for_all);
}

}  // namespace whence::gpu

#endif
