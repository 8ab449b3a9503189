// The CPU behind DeviceMemory.
#pragma once

#include "tensor/device/backend.h"
#include "tensor/kernels.h"

namespace whence {

class CpuMemory final : public DeviceMemory {
 public:
  void* allocate(std::size_t bytes) override;
  void deallocate(void* block, std::size_t bytes) noexcept override;
  void copy_to_cpu(const void* from, void* to, std::size_t bytes) override;
  void copy_from_cpu(const void* from, void* to, std::size_t bytes) override;
  Allocator& allocator() override;
};

}  // namespace whence
