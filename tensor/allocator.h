// The caching allocator of the CPU: blocks are kept by size class and used again, because fresh pages cost up to ten times the
// work done on them. Large blocks are mapped with huge pages. Thread-safe.
#pragma once

#include <cstddef>

namespace whence {

struct MemoryStatistics {
  std::size_t live = 0;      // bytes in use now
  std::size_t peak = 0;      // the largest `live` since the start or reset_peak()
  std::size_t reserved = 0;  // bytes held from the system, in use or cached
};

class Allocator {
 public:
  static Allocator& cpu();

  // At least `bytes` bytes, aligned to 64. Throws Error with asked, live, peak and reserved bytes when the system has no more.
  void* allocate(std::size_t bytes);
  // REQUIRES: `block` came from allocate(bytes).
  void deallocate(void* block, std::size_t bytes) noexcept;

  MemoryStatistics statistics() const;
  void reset_peak();
  void release_cached();  // gives every cached block back to the system

  // The size that a request is rounded up to: multiples of 64 to 1 KiB, then four steps per doubling.
  static std::size_t block_size(std::size_t bytes);

 private:
  Allocator();
  struct State;
  State* state_;  // never destroyed: tensors in static storage may be freed after any destructor here
};

}  // namespace whence
