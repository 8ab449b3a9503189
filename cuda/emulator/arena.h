// The emulated device's memory. Each byte has two addresses. The host's is never mapped, so host code that follows it
// is caught. Kernels and copies use the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace whence::gpu::emulator {

class Arena {
 public:
  static Arena& instance();  // throws Error if the host cannot reserve the addresses

  // Returns a block aligned to 256 bytes, full of 0xFF, which is NaN in every floating dtype. As many bytes of 0xFF
  // follow, which must not be touched. Returns null if Settings::memory is used up.
  void* allocate(std::size_t bytes);
  void deallocate(void* block);

  // The allocator (tensor/device/allocator.h) caches blocks: these functions record the use of each, and how many bytes
  // it uses. A graph's block is not filled until the graph is destroyed. hand_out fills it with 0xFF again and returns
  // how many bytes it filled. Throws Error if it was written while it was free.
  std::size_t hand_out(void* block, std::size_t bytes, const void* graph);
  // `graph`: the graph being recorded, or null. Returns how many bytes a replay fills at this point.
  std::size_t retire(void* block, const void* graph);
  void forget_graph(const void* graph);

  // A use of a block. Its number changes each time the block is handed out or freed.
  struct Use {
    std::size_t begin, bytes;
    std::uint64_t number;
  };
  // Returns the blocks in use that the words of `memory` point at, by either address: the pointers of an argument. Those
  // of `graph`'s own memory are left out.
  std::vector<Use> uses_in(const void* memory, std::size_t bytes, const void* graph = nullptr) const;
  bool holds(const Use& use) const;
  // True if [address, address + bytes) is inside one block in use.
  bool in_use(const void* address, std::size_t bytes) const;
  std::byte* bytes_of(const Use& use) const { return memory_ + use.begin; }
  // Bytes of 0xFF before a block and behind it, which belong to no tensor.
  static constexpr std::size_t band = 256;

  std::size_t capacity() const;
  std::size_t used() const { return used_; }

  // Fills with 0xFF, unless Settings::dry. Returns true if it did.
  static bool fill(std::byte* bytes, std::size_t count);

  // contains: true if a device address is in the arena. bytes_at: where its bytes are. REQUIRES of bytes_at:
  // contains(address), or null.
  bool contains(const void* address) const { return offset(address) < reserved_; }
  std::byte* bytes_at(const void* address) const { return address ? memory_ + offset(address) : nullptr; }

  // Returns the device address of bytes that kernels see.
  const std::byte* address_of(const void* bytes) const {
    return first_ + (static_cast<const std::byte*>(bytes) - memory_);
  }

  // The memory as kernels see it: memory() is its first byte. For pointers (pointers.h) and shadows (shadow.h).
  std::byte* memory() const { return memory_; }
  std::size_t reserved() const { return reserved_; }
  std::size_t offset(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(first_);
  }
  // For reports: finds the block that holds the address. Works in a signal handler; returns false if another thread is
  // just changing the blocks.
  bool find_block(const void* address, std::size_t* offset_in_block, std::size_t* block_bytes) const;

 private:
  struct Block {
    std::size_t size = 0, used = 0;  // used: 0 if it is free
    std::uint64_t number = 0;
    const void* graph = nullptr;  // whose memory it is
    bool poisoned = false;        // full of 0xFF since it was freed
  };
  using Blocks = std::map<std::size_t, Block>;  // by offset
  Arena();
  const Blocks::value_type* block_at(std::size_t offset) const;

  std::byte* first_ = nullptr;   // the host's addresses: reserved, without access
  std::byte* memory_ = nullptr;  // the addresses for kernels and copies
  std::size_t reserved_ = 0, used_ = 0;
  mutable std::mutex mutex_;
  std::uint64_t numbers_ = 0;
  Blocks blocks_;
};

// Returns addresses whose memory is taken when it is touched, at `where` if the system agrees. Throws Error if it
// refuses.
std::byte* reserve(std::size_t bytes, void* where = nullptr, bool accessible = true);

// Installs a handler that reports host code that touches device memory, and passes the fault on to the handler before
// it. Called repeatedly, since others (a test framework, a sanitizer) install their own handlers.
void watch_host_accesses();

}  // namespace whence::gpu::emulator
