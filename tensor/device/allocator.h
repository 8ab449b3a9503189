// The caching allocator of every device. It keeps blocks by size class for reuse: fresh pages cost up to ten times the
// work done on them, and a GPU synchronises whenever it allocates or frees. Size classes and statistics are only here;
// blocks come from a BlockSource. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tensor/backend.h"
#include "tensor/error.h"

namespace whence {

struct MemoryStatistics {
  std::size_t live = 0;      // bytes in use now
  std::size_t peak = 0;      // the largest `live` since the start or reset_peak()
  std::size_t reserved = 0;  // bytes held from the device, in use or cached
};

// BlockSource is the memory that a device offers: blocks, and copies between the device and the CPU.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  virtual void* take(std::size_t bytes) = 0;  // null when there is no more
  virtual void give_back(void* block, std::size_t bytes) noexcept = 0;
  struct Room {
    std::size_t free = 0, capacity = 0;  // 0, 0: unknown
  };
  virtual Room room() const = 0;
  virtual const char* name() const = 0;    // "GPU memory"
  virtual bool host_may_read() const = 0;  // true if the host can address it; AddressSanitizer then checks it
  // hand_out and retire mark the time during which a tensor owns a block, for memory that checks its use.
  virtual void hand_out(void* /*block*/, std::size_t /*bytes*/) {}
  virtual void retire(void* /*block*/) noexcept {}
  virtual void copy_to_cpu(const void* from, void* to, std::size_t bytes);    // waits for what was launched before
  virtual void copy_from_cpu(const void* from, void* to, std::size_t bytes);  // `from` may change afterwards
};

// LiveBlock is a block in use and the op that requested it. CallSite names the op.
struct LiveBlock {
  std::size_t bytes = 0;     // requested
  const char* op = nullptr;  // null: no op requested it
  Site site;                 // line 0: unknown
};

class Allocator final : public Memory {
 public:
  explicit Allocator(BlockSource& its_source);  // REQUIRES: the source outlives every block
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  ~Allocator() override;  // gives cached blocks back
  static Allocator& cpu();
  BlockSource& source() const { return source_; }

  // Returns at least `bytes` bytes, aligned to 64 or better. If the device has no more, cached blocks are given back
  // and it tries again. Then it throws OutOfMemory with the bytes requested, the bytes free, the largest holders and
  // how much must be freed, or std::bad_alloc if its own lists cannot grow. Either leaves everything unchanged.
  void* allocate(std::size_t bytes) override;
  // REQUIRES: `block` came from allocate(bytes). Allocates nothing: allocate() reserved the list entry.
  void deallocate(void* block, std::size_t bytes) noexcept override;
  void copy_to_cpu(const void* from, void* to, std::size_t bytes) override { source_.copy_to_cpu(from, to, bytes); }
  void copy_from_cpu(const void* from, void* to, std::size_t bytes) override { source_.copy_from_cpu(from, to, bytes); }

  MemoryStatistics statistics() const;
  BlockSource::Room room() const { return source_.room(); }  // of the device
  void reset_peak();
  void release_cached();  // gives every cached block back to the device, except those of pools
  // Returns the largest blocks in use. Blocks under 64 KiB are not listed one by one.
  std::vector<LiveBlock> largest(std::size_t count) const;

  // A pool is memory whose addresses a recorded graph uses. While one is open, every block comes from the device or
  // from blocks freed into the pool, never from the common cache. Blocks from outside that are freed meanwhile are
  // held, because the graph may read them. After it is closed, its blocks are not reused until it is released. One is
  // open at a time.
  using Pool = std::size_t;
  Pool open_pool();  // std::bad_alloc if its lists cannot be allocated
  void close_pool() noexcept;
  void release_pool(Pool pool) noexcept;  // its blocks become common ones, those still in use when they are freed

  // Returns the rounded-up size of a request: multiples of 64 to 1 KiB, then four steps per doubling, and sixteen from
  // 64 MiB on.
  static std::size_t block_size(std::size_t bytes);

 private:
  static constexpr std::size_t class_count = 640;
  // Free blocks by size class. A list is given room for a block before that block is handed out, so that deallocation
  // cannot fail.
  using Cache = std::array<std::vector<void*>, class_count>;
  struct PoolBlocks {
    Cache own;   // blocks of the pool that are unused now
    Cache held;  // blocks from outside that were freed while it was open
  };
  static constexpr Pool no_pool = 0;

  // REQUIRES: the lock is held, for all of these.
  void give_back(std::size_t size_class);  // one cached block
  void* take_in_exchange(std::size_t block);
  void* find(std::size_t block);
  void keep(void* memory, std::size_t block) noexcept;
  std::vector<LiveBlock> largest_now(std::size_t count) const;
  [[noreturn]] void refuse(std::size_t bytes) const;

  BlockSource& source_;
  mutable std::mutex mutex_;
  Cache cached_;
  std::array<std::size_t, class_count> taken_{};  // from the device, in use or not
  MemoryStatistics statistics_;
  std::unordered_map<void*, LiveBlock> large_;  // in use
  std::unordered_map<void*, Pool> owners_;      // of blocks that a pool took from the device, in use or not
  std::unordered_map<Pool, PoolBlocks> pools_;
  Pool open_ = no_pool, newest_ = no_pool;
};

Allocator& memory_of(Device device);  // throws Error if this build has no such device

}  // namespace whence
