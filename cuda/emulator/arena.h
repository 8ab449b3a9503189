// The emulated device's memory. Its bytes have two addresses. The host gets one that is never mapped, so host code that
// follows it is caught. Kernels and copies use the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace whence::gpu::emulator {

class Arena {
 public:
  static Arena& instance();  // Error when the host cannot reserve the addresses

  // Aligned to 256 bytes and full of 0xFF, which is NaN in every floating dtype. Null when Settings::memory is used up.
  void* allocate(std::size_t bytes);
  void deallocate(void* block);
  std::size_t capacity() const;
  std::size_t used() const { return used_; }

  // Whether a device address lies here, and where its bytes are. REQUIRES of bytes_at: contains(address), or null.
  bool contains(const void* address) const { return offset(address) < reserved_; }
  std::byte* bytes_at(const void* address) const { return address ? memory_ + offset(address) : nullptr; }

  // The device address of bytes that kernels see.
  const std::byte* address_of(const void* bytes) const {
    return first_ + (static_cast<const std::byte*>(bytes) - memory_);
  }

  // Where kernels see the memory: memory() is its first byte. For pointers (pointers.h) and shadows (shadow.h).
  std::byte* memory() const { return memory_; }
  std::size_t reserved() const { return reserved_; }
  std::size_t offset(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(first_);
  }
  // For the report of a host access: the block that holds the address. Works in a signal handler.
  bool find_block(const void* address, std::size_t* offset_in_block, std::size_t* block_bytes) const;

 private:
  Arena();

  std::byte* first_ = nullptr;   // the face of the host: reserved addresses without access
  std::byte* memory_ = nullptr;  // the face of kernels and copies
  std::size_t reserved_ = 0, used_ = 0;
  std::map<std::size_t, std::size_t> blocks_;  // in use: offset to size
};

// Reports host code that touches device memory in one line, and passes the fault on to the handler before it. Called
// again and again, since others (a test framework, a sanitizer) install their own handlers.
void watch_host_accesses();

}  // namespace whence::gpu::emulator
