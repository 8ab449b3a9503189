// GPU memory behind tensor/'s DeviceMemory.
#pragma once

#include "tensor/kernels.h"

namespace whence {

// Device memory only, never managed: a page that moves by itself hides what a step costs.
class CudaMemory final : public DeviceMemory {
 public:
  void* allocate(std::size_t bytes) override;
  void deallocate(void* block, std::size_t bytes) noexcept override;
  // Both wait for the kernels launched before; an error of one of those surfaces here.
  void copy_to_cpu(const void* from, void* to, std::size_t bytes) override;
  void copy_from_cpu(const void* from, void* to, std::size_t bytes) override;
};

}  // namespace whence
