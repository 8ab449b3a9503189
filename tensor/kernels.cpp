// Which device has which kernels and which memory; the number of threads.
#include "tensor/kernels.h"

#include <cstring>

#include "tensor/allocator.h"
#include "tensor/parallel.h"

namespace whence {
namespace {

class CpuMemory final : public DeviceMemory {
 public:
  void* allocate(std::size_t bytes) override { return Allocator::cpu().allocate(bytes); }
  void deallocate(void* block, std::size_t bytes) noexcept override { Allocator::cpu().deallocate(block, bytes); }
  void copy_to_cpu(const void* from, void* to, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void copy_from_cpu(const void* from, void* to, std::size_t bytes) override { std::memcpy(to, from, bytes); }
};

[[noreturn]] void no_device(Device device) {
  fail("device", concat(to_string(device), " given; this build has no CUDA; configure with -DWHENCE_CUDA=ON, or use cpu"));
}

// The backend of a device that is not the CPU.
Backend backend_of(Device device) {
  if (device.index != 0) fail("device", concat(to_string(device), " given; one GPU, cuda:0, is what this version runs on"));
  const Backend backend = cuda_backend();
  if (!backend.kernels) no_device(device);
  return backend;
}

int thread_count = 0;

}  // namespace

Kernels& kernels(Device device) { return device.is_cpu() ? cpu_kernels() : *backend_of(device).kernels; }

DeviceMemory& memory_of(Device device) {
  static CpuMemory cpu;
  return device.is_cpu() ? static_cast<DeviceMemory&>(cpu) : *backend_of(device).memory;
}

int threads() {
  if (thread_count == 0) thread_count = omp_get_max_threads();
  return thread_count;
}

void set_threads(int count) {
  if (count < 1 || count > 1024) fail("set_threads", concat(count, " given; 1 to 1024 required"));
  thread_count = count;
}

}  // namespace whence
