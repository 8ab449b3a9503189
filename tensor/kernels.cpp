#include "tensor/kernels.h"

#include "tensor/device/allocator.h"
#include "tensor/device/backend.h"
#include "tensor/device/device_runtime.h"
#include "tensor/error.h"
#include "tensor/joined_kernels.h"

namespace whence {

// The backend of a device that is not the CPU.
static Backend backend_of(Device device) {
  if (device.is_planned()) return planned_backend(device);
  if (device.index != 0) fail("device", to_string(device), " given; one GPU, cuda:0, is what this version runs on");
  const Backend backend = cuda_backend();
  if (!backend.kernels)
    fail("device", to_string(device), " given; this build has no CUDA; configure with -DWHENCE_CUDA=ON, or use cpu");
  return backend;
}

JoinedKernels& joined_kernels(Device device) { return device.is_cpu() ? cpu_kernels() : *backend_of(device).kernels; }
Kernels& kernels(Device device) { return joined_kernels(device); }

Allocator& memory_of(Device device) { return device.is_cpu() ? Allocator::cpu() : *backend_of(device).memory; }

DeviceRuntime& runtime_of(Device device) {
  if (device.is_cpu())
    fail("runtime_of", "cpu given; a GPU is required; the CPU records nothing and has nothing to wait for");
  return *backend_of(device).runtime;
}

IndexLauncher& launcher_of(Device device) { return *backend_of(device).launcher; }

void synchronise(Device device) {
  if (!device.is_cpu()) runtime_of(device).synchronise();
}

}  // namespace whence
