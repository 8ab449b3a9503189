// The devices of a whole build. Their backends have fused kernels, which the core does not need.
#include "tensor/backend.h"
#include "tensor/device/allocator.h"
#include "tensor/device/device_runtime.h"
#include "tensor/device/joined_kernels.h"
#include "tensor/error.h"

namespace whence {

// tensor/cpu/backend.cpp, tensor/device/planned.cpp and cuda/runtime/backend.cpp register these.
JoinedKernels& joined_kernels(Device device) { return static_cast<JoinedKernels&>(kernels(device)); }
JoinedKernels& joined_kernels(const Tensor& x) { return static_cast<JoinedKernels&>(kernels(x)); }
Allocator& memory_of(Device device) { return static_cast<Allocator&>(*backend_of(device).memory); }

DeviceRuntime& runtime_of(Device device) {
  if (device.is_cpu())
    fail("runtime_of", "cpu given; a GPU is required; the CPU records nothing and has nothing to wait for");
  return *backend_of(device).runtime;
}

void synchronise(Device device) {
  if (!device.is_cpu()) runtime_of(device).synchronise();
}

}  // namespace whence
