// The emulated device's memory. Its bytes have two addresses. The host gets one that is never mapped, so host code that
// follows it is caught. Kernels and copies use the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace whence::gpu::emulator {

class Arena {
 public:
  static Arena& instance();  // Error when the host cannot reserve the addresses

  // Aligned to 256 bytes, full of 0xFF, which is NaN in every floating dtype, and followed by as many bytes of it again
  // that nobody may touch. Null when Settings::memory is used up.
  void* allocate(std::size_t bytes);
  void deallocate(void* block);

  // The allocator (tensor/device/allocator.h) keeps blocks: what each is used for, and how many of its bytes. A graph's
  // block is left as it is until the graph goes.
  // Full of 0xFF again; returns how many bytes that are. Error when it was written while it was free.
  std::size_t hand_out(void* block, std::size_t bytes, const void* graph);
  // `graph`: that is being recorded, or null. Returns how many bytes a replay fills at this point.
  std::size_t retire(void* block, const void* graph);
  void forget_graph(const void* graph);

  // Blocks by number: a block is another one each time it is handed out or freed.
  struct Use {
    std::size_t begin, bytes;
    std::uint64_t number;
  };
  // The blocks in use at which the words of `memory` point, by either face. So an argument's pointers are found.
  std::vector<Use> uses_in(const void* memory, std::size_t bytes) const;
  bool holds(const Use& use) const;
  bool belongs_to(const void* graph, const Use& use) const;
  // Whether [address, address + bytes) lies in one block in use.
  bool in_use(const void* address, std::size_t bytes) const;
  std::byte* bytes_of(const Use& use) const { return memory_ + use.begin; }
  // Bytes of 0xFF next to those of a use, behind them or before them, that are no tensor's.
  struct Guard {
    std::byte* first;
    std::size_t bytes;
    Use of;
    bool behind;
  };
  std::vector<Guard> guards_of(const std::vector<Use>& uses) const;

  std::size_t capacity() const;
  std::size_t used() const { return used_; }

  // With 0xFF, unless Settings::dry: whether they are full of it now.
  static bool fill(std::byte* bytes, std::size_t count);

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
  // For reports: the block that holds the address. Works in a signal handler, where another thread may just be changing
  // the blocks: then it says that there is none.
  bool find_block(const void* address, std::size_t* offset_in_block, std::size_t* block_bytes) const;

 private:
  struct Block {
    std::size_t size = 0, used = 0;  // used: 0 where it is free
    std::uint64_t number = 0;
    const void* graph = nullptr;  // whose memory it is
    bool poisoned = false;        // full of 0xFF since it was freed
  };
  using Blocks = std::map<std::size_t, Block>;  // by offset
  Arena();
  const Blocks::value_type* block_at(std::size_t offset) const;

  std::byte* first_ = nullptr;   // the face of the host: reserved addresses without access
  std::byte* memory_ = nullptr;  // the face of kernels and copies
  std::size_t reserved_ = 0, used_ = 0;
  mutable std::mutex mutex_;
  std::uint64_t numbers_ = 0;
  Blocks blocks_;
};

// Reports host code that touches device memory in one line, and passes the fault on to the handler before it. Called
// again and again, since others (a test framework, a sanitizer) install their own handlers.
void watch_host_accesses();

}  // namespace whence::gpu::emulator
