// Where tensor/ asks for CUDA: the kernels and the memory, or an Error that says why there is no usable GPU.
#include "cuda/backend.h"

#include <cuda_runtime_api.h>

#include <string>

#include "cuda/kernels.h"
#include "cuda/memory.h"
#include "tensor/error.h"

namespace whence {
namespace {

constexpr int oldest_major = 8;  // compute capability that the kernels are compiled for

// Empty when device 0 can be used.
std::string why_unusable() {
  int count = 0, major = 0, minor = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess) return concat("cudaGetDeviceCount: ", cudaGetErrorString(counted));
  if (count == 0) return "cudaGetDeviceCount: 0 devices";
  cudaError_t status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  if (status == cudaSuccess) status = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  if (status != cudaSuccess) return concat("cudaDeviceGetAttribute: ", cudaGetErrorString(status));
  if (major < oldest_major) return concat("compute capability ", major, '.', minor, "; ", oldest_major, ".0 or newer required");
  return {};
}

}  // namespace

// Neither object is ever destroyed: tensors in static storage are freed after any destructor here.
Backend cuda_backend() {
  static const std::string& reason = *new std::string(why_unusable());
  static CudaMemory* const memory = new CudaMemory;
  if (!reason.empty()) fail("device", concat("cuda:0 given; no CUDA device is usable (", reason, "); use cpu"));
  return {cuda_bodies(), memory};
}

Kernels* cuda_bodies() {
  static CudaKernels* const kernels = new CudaKernels;
  return kernels;
}

}  // namespace whence
