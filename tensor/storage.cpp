#include "tensor/storage.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tensor/backend.h"

namespace whence {
namespace {

constexpr std::size_t guard_bytes = 64;
constexpr unsigned char guard_pattern = 0xA5;
thread_local bool guards_on = false;
alignas(
    64) std::byte nothing[64];  // data of empty storages: views compute addresses from it, which null would not allow

}  // namespace

// Adds sentinels around the storages that this thread makes on the CPU from now on. Tests use them to see if a kernel
// wrote past its output.
void Storage::set_guards(bool on) { guards_on = on; }

Ref<Storage> Storage::create(std::size_t bytes, Device device) {
  Ref<Storage> storage(new Storage);
  storage->device_ = device;
  storage->guarded_ = guards_on && device.is_cpu();
  const std::size_t padding = storage->guarded_ ? guard_bytes : 0;
  if (bytes + padding > 0) {
    std::byte* memory = static_cast<std::byte*>(backend_of(device).memory->allocate(bytes + 2 * padding));
    if (storage->guarded_) {
      std::memset(memory, guard_pattern, guard_bytes);
      std::memset(memory + guard_bytes + bytes, guard_pattern, guard_bytes);
    }
    storage->data_ = memory + padding;
  } else {
    storage->data_ = nothing;
  }
  storage->size_ = bytes;
  return storage;
}

// Makes the storage refer to `size` bytes on the CPU that it does not own; they are read and never written. `owner` is
// released with the storage.
void Storage::borrow(std::byte* data, std::size_t size, std::shared_ptr<const void> owner) {
  if (size_ > 0 || guarded_) fail("borrow", "a storage of ", size_, " bytes given; one of none required");
  data_ = size > 0 ? data : nothing;
  size_ = size;
  owner_ = std::move(owner);
}

bool Storage::guards_intact() const {
  if (!guarded_) return true;
  const auto intact = [](const std::byte* begin) {
    return std::all_of(begin, begin + guard_bytes, [](std::byte b) { return b == std::byte{guard_pattern}; });
  };
  return intact(data_ - guard_bytes) && intact(data_ + size_);
}

void Storage::dispose() {
  const std::size_t padding = guarded_ ? guard_bytes : 0;
  if (data_ && data_ != nothing && !borrowed())
    backend_of(device_).memory->deallocate(data_ - padding, size_ + 2 * padding);
  delete this;
}

}  // namespace whence
