// Where tensor/ asks for CUDA: the kernels and the memory, or an Error that says why there is no usable GPU.
#include "cuda/runtime/backend.h"

#include "cuda/kernels/kernels.h"
#include "cuda/runtime/index_launcher.h"
#include "cuda/runtime/memory.h"
#include "cuda/runtime/runtime.h"
#include "tensor/device/backend.h"

namespace whence {

// No object here is ever destroyed: tensors in static storage are freed after any destructor.
Backend cuda_backend() {
  const DeviceFacts& facts = gpu::device_facts();
  if (!facts.refusal.empty())
    fail("device", "cuda:0 given; no GPU can be used: ", facts.refusal, "; ", facts.advice, ", or use cpu");
  static CudaRuntime& runtime = *new CudaRuntime;
  static CudaKernels& kernels = *new CudaKernels;
  return {&kernels, &gpu_memory(), &runtime, &index_launcher()};
}

const DeviceFacts& cuda_facts() { return gpu::device_facts(); }

}  // namespace whence
