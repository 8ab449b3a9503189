#include "tensor/kernels.h"

#include "tensor/device/allocator.h"
#include "tensor/device/backend.h"
#include "tensor/device/device_runtime.h"
#include "tensor/error.h"
#include "tensor/joined_kernels.h"

namespace whence {
namespace {

[[noreturn]] void no_device(Device device) {
  fail("device", to_string(device), " given; this build has no CUDA; configure with -DWHENCE_CUDA=ON, or use cpu");
}

// The backend of a device that is not the CPU.
Backend backend_of(Device device) {
  if (device.is_planned()) return planned_backend(device);
  if (device.index != 0) fail("device", to_string(device), " given; one GPU, cuda:0, is what this version runs on");
  const Backend backend = cuda_backend();
  if (!backend.kernels) no_device(device);
  return backend;
}

}  // namespace

JoinedKernels& joined_kernels(Device device) { return device.is_cpu() ? cpu_kernels() : *backend_of(device).kernels; }
Kernels& kernels(Device device) { return joined_kernels(device); }

Allocator& memory_of(Device device) { return device.is_cpu() ? Allocator::cpu() : *backend_of(device).memory; }

DeviceRuntime& runtime_of(Device device) {
  if (device.is_cpu())
    fail("runtime_of", "cpu given; a GPU is required; the CPU records nothing and has nothing to wait for");
  return *backend_of(device).runtime;
}

IndexLauncher& launcher_of(const char* op, Device device) {
  const Backend backend = device.is_planned() ? planned_backend(device) : cuda_backend();
  if (!backend.launcher)
    fail(op, "device ", to_string(device), " given; this build has no CUDA; configure with -DWHENCE_CUDA=ON");
  return *backend.launcher;
}

void synchronise(Device device) {
  if (!device.is_cpu()) runtime_of(device).synchronise();
}

}  // namespace whence
