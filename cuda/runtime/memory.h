// GPU memory behind tensor/'s DeviceMemory, and its recordings behind DeviceRuntime. The same over
// the driver and over the emulator.
#pragma once

#include "tensor/device/allocator.h"
#include "tensor/device/backend.h"
#include "tensor/device/device_runtime.h"
#include "tensor/kernels.h"

namespace whence {

class CudaMemory final : public DeviceMemory {
 public:
  CudaMemory();
  void* allocate(std::size_t bytes) override;
  void deallocate(void* block, std::size_t bytes) noexcept override;
  void copy_to_cpu(const void* from, void* to, std::size_t bytes) override;
  void copy_from_cpu(const void* from, void* to, std::size_t bytes) override;
  Allocator& allocator() override { return allocator_; }

 private:
  Allocator allocator_;
};

class CudaRuntime final : public DeviceRuntime {
 public:
  explicit CudaRuntime(Allocator& allocator) : allocator_(allocator) {}
  void synchronise() override;
  std::unique_ptr<RecordedWork> record(const std::function<void()>& work) override;
  bool recording() const override;
  DeviceTraffic traffic() const override;

 private:
  Allocator& allocator_;
};

}  // namespace whence
