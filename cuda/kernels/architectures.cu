// The GPU generations this build has kernels for: its configuration, and a check for the current GPU. The GPU's driver
// decides: machine code of 90a is for 9.0 alone, that of 80 for all of 8.x, and PTX of 80 for all later GPUs.
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
