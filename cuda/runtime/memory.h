// GPU memory behind tensor/'s Allocator, and its recordings behind DeviceRuntime. The same over
// the driver and over the emulator.
#pragma once

#include "tensor/device/allocator.h"
#include "tensor/device/backend.h"
#include "tensor/device/device_runtime.h"
#include "tensor/kernels.h"

namespace whence {

Allocator& gpu_memory();

class CudaRuntime final : public DeviceRuntime {
 public:
  void synchronise() override;
  std::unique_ptr<RecordedWork> record(const std::function<void()>& work) override;
  bool recording() const override;
  DeviceTraffic traffic() const override;
};

}  // namespace whence
