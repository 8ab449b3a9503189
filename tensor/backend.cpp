#include "tensor/backend.h"

#include <cstdlib>
#include <cstring>

#include "tensor/error.h"

namespace whence {
namespace {

class SystemMemory final : public Memory {
 public:
  void* allocate(std::size_t bytes) override {
    if (void* const block = std::aligned_alloc(64, (bytes + 63) / 64 * 64)) return block;
    throw OutOfMemory(error_at_call_site("allocate", to_text(bytes_text(bytes), " asked for; the system has no more")),
        {.asked = bytes});
  }
  void deallocate(void* block, std::size_t) noexcept override { std::free(block); }
  void copy_to_cpu(const void* from, void* to, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void copy_from_cpu(const void* from, void* to, std::size_t bytes) override { std::memcpy(to, from, bytes); }
};

using Find = Backend (*)(Device);

Backend core_backend(Device) {
  static SystemMemory& memory = *new SystemMemory;  // never destroyed: tensors in static storage may be freed later
  static Kernels kernels;
  return {&kernels, &memory};
}

Find& found_by(Device::Kind kind) {
  static Find finds[3] = {core_backend, nullptr, nullptr};
  return finds[static_cast<std::size_t>(kind)];
}

}  // namespace

RegisteredBackend::RegisteredBackend(Device::Kind kind, Backend (*find)(Device)) { found_by(kind) = find; }

Backend backend_of(Device device) {
  if (device.kind == Device::Kind::cuda && device.index != 0)
    fail("device", to_string(device), " given; this version runs on one GPU, cuda:0");
  const Find find = found_by(device.kind);
  const Backend backend = find ? find(device) : Backend{};
  if (!backend.kernels)
    fail("device", to_string(device), " given; this build has no CUDA; configure with -DWHENCE_CUDA=ON, or use cpu");
  return backend;
}

}  // namespace whence
