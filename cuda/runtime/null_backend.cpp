// Definitions for a build without CUDA. tensor/kernels.cpp reports that there is no such device.
#include "cuda/runtime/backend.h"
#include "tensor/device/device_runtime.h"

namespace whence {

const DeviceFacts& cuda_facts() {
  static const DeviceFacts& facts =
      *new DeviceFacts{.refusal = "this build has no CUDA", .advice = "configure with -DWHENCE_CUDA=ON", .name = {}};
  return facts;
}

gpu::emulator::Settings* emulator_settings() { return nullptr; }

}  // namespace whence
