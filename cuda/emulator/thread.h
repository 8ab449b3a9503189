// The emulated twin of cuda/vocabulary/thread.h: a kernel's thread, its pointers (pointers.h) and its numbers
// (counted.h). Methods get the place in the source from a default argument.
#pragma once

#include <cstring>

#include "cuda/emulator/block_run.h"
#include "cuda/emulator/pointers.h"

namespace whence::gpu {

class Thread {
 public:
  static constexpr int warp_size = 32;
  static constexpr unsigned all_lanes = 0xFFFFFFFFu;

  Thread(index_t block, index_t blocks, int index) : block_(block), blocks_(blocks), index_(index) {}
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  index_t block() const { return block_; }
  index_t blocks() const { return blocks_; }
  int index() const { return index_; }
  int lane() const { return index_ % warp_size; }
  int warp() const { return index_ / warp_size; }

  void sync(Site at = Site::current()) const { run().sync(at); }
  void sync_warp(Site at = Site::current()) const { run().sync_warp(at); }

  template <class V> V shuffle(V value, int lane, Site at = Site::current()) const {
    return exchange("shuffle", value, lane & (warp_size - 1), at);
  }
  template <class V> V shuffle_xor(V value, int mask, Site at = Site::current()) const {
    return exchange("shuffle_xor", value, (lane() ^ mask) & (warp_size - 1), at);
  }
  template <class V> V shuffle_up(V value, int distance, Site at = Site::current()) const {
    return exchange("shuffle_up", value, lane() < distance ? lane() : lane() - distance, at);
  }

  template <class I, emulator::Space space>
  I atomic_add(const Pointer<I, space>& memory, Index i, std::type_identity_t<I> value) const {
    static_assert(std::is_integral_v<I>, "sums of floating numbers would depend on the order of the threads");
    return memory.add_atomically(i, value);
  }

  template <class T> Shared<T> shared(int count, Site at = Site::current()) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T), taken = (bytes + 15) / 16 * 16;
    std::byte* const first = emulator::BlockMemory::instance().part(shared_used_, taken, at);
    shared_used_ += taken;
    return {reinterpret_cast<T*>(first), first, first + bytes};
  }

 private:
  static emulator::BlockRun& run() { return *emulator::running.block_run; }

  template <class V> V exchange(const char* name, V value, int from, const Site& at) const {
    static_assert((std::is_arithmetic_v<V> || NumberTraits<V>::counted) && sizeof(V) <= 8,
        "a shuffle moves one number of at most 64 bits");
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    const std::uint64_t* const of_lanes =
        run().meet_warp(name, bits, at, [](const std::uint64_t*) { ++emulator::running.now.shuffles; });
    std::memcpy(static_cast<void*>(&value), &of_lanes[from], sizeof value);
    return value;
  }

  index_t block_, blocks_;
  int index_;
  std::size_t shared_used_ = 0;
};

}  // namespace whence::gpu
