// Blocks straight from the CUDA runtime.
#include "cuda/memory.h"

#include <cuda_runtime_api.h>

#include "tensor/error.h"

namespace whence {
namespace {

void copy(const void* from, void* to, std::size_t bytes, cudaMemcpyKind kind, const char* direction) {
  if (bytes == 0) return;
  const cudaError_t status = cudaMemcpy(to, from, bytes, kind);
  if (status != cudaSuccess) {
    fail("copy", concat(bytes, " bytes ", direction, " the GPU: ", cudaGetErrorString(status),
                        "; kernels without an error before this are required; run with CUDA_LAUNCH_BLOCKING=1 to find the one"));
  }
}

}  // namespace

void* CudaMemory::allocate(std::size_t bytes) {
  void* block = nullptr;
  const cudaError_t status = cudaMalloc(&block, bytes);
  if (status == cudaSuccess) return block;
  static_cast<void>(cudaGetLastError());  // running out of memory is no lasting error: the next launch must not report it again
  std::size_t free_bytes = 0, total_bytes = 0;
  if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess)
    fail("allocate", concat(bytes, " bytes asked: ", cudaGetErrorString(status)));
  fail("allocate", concat("out of GPU memory: ", bytes, " bytes asked with ", free_bytes, " free of ", total_bytes, " (",
                          cudaGetErrorString(status), "); use a smaller batch or length, or checkpoint()"));
}

// The status is not read: at the end of a program the driver may be gone before the last tensor, and its memory with it.
void CudaMemory::deallocate(void* block, std::size_t) noexcept { static_cast<void>(cudaFree(block)); }

void CudaMemory::copy_to_cpu(const void* from, void* to, std::size_t bytes) { copy(from, to, bytes, cudaMemcpyDeviceToHost, "from"); }
void CudaMemory::copy_from_cpu(const void* from, void* to, std::size_t bytes) { copy(from, to, bytes, cudaMemcpyHostToDevice, "to"); }

}  // namespace whence
