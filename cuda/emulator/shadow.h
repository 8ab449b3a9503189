// Shadow memory: for every number of the device's and the block's memory, its last reader and writer. It finds two
// threads that access one number without a barrier between them, at least one of them writing, in whatever order they
// run.
//
// A stamp names a thread between two of its barriers: (segment, lane). Each warp of each block gets a new segment at
// its start and at every barrier. BlockRun's vector clocks decide if two segments of a block are ordered. Blocks of one
// launch never are.
#pragma once

#include <vector>

#include "cuda/emulator/running.h"

namespace whence::gpu::emulator {

struct ShadowEntry {
  std::uint64_t write = 0;  // stamp, with atomic_bit after an atomic addition
  std::uint64_t read = 0;   // stamp of one reader: the first of the unordered ones
  std::int32_t write_site = 0, read_site = 0;
};
inline constexpr std::uint64_t atomic_bit = std::uint64_t{1} << 63;
// A stamp that belongs to no thread: a copy ahead will still write the number (copies_ahead.h).
inline constexpr std::uint64_t in_flight = atomic_bit - 1;

// One shadow per size of a number (1, 2, 4, 8, 16 bytes): memory holds numbers of one size during one launch.
struct Shadows {
  std::byte* memory = nullptr;  // of the arena
  ShadowEntry* of_size[5] = {};
};
inline constinit Shadows shadows;
void prepare_shadows();  // before the first launch

// The memory that a pointer may access, as texts call it.
enum class Space : unsigned char { global, shared };

// Out of line: all cases but the first access to a number in this launch. They stop the launch if two threads conflict.
void check_before_read(const ShadowEntry& entry, Space space, const void* number, int size, const Site& at);
void check_before_write(
    const ShadowEntry& entry, Space space, const void* number, int size, const Site& at, bool atomic);
// True if an earlier reader, not ordered before this thread, stays the remembered one.
bool keeps_reader(const ShadowEntry& entry);
[[noreturn]] void unset_shared_read(int size, const Site& at);

// The shared memory of the running block, and its shadow.
class BlockMemory {
 public:
  static BlockMemory& instance();

  void begin_block(std::size_t bytes);  // all bytes unset: 0xFF, which is NaN in every floating dtype
  // Returns the next part, for a thread that has `used` bytes so far. Stops the launch if it gave fewer.
  std::byte* part(std::size_t used, std::size_t bytes, const Site& at);
  void forget() { shadow_.assign(shadow_.size(), {}); }  // after a block that was stopped
  ShadowEntry& shadow(const void* number) {
    return shadow_[static_cast<std::size_t>(static_cast<const std::byte*>(number) - bytes_)];
  }

 private:
  std::byte* bytes_ = nullptr;
  std::size_t size_ = 0, reserved_ = 0;
  std::vector<ShadowEntry> shadow_;  // one for each byte; those of the first bytes of numbers are used
};

template <int size> ShadowEntry& shadow_of(Space space, const void* number) {
  constexpr int shift = std::countr_zero(static_cast<unsigned>(size));
  if (space == Space::shared) return BlockMemory::instance().shadow(number);
  return shadows
      .of_size[shift][static_cast<std::size_t>(static_cast<const std::byte*>(number) - shadows.memory) >> shift];
}

// The smallest stamp that is not of a block, or of a launch, that has ended.
inline std::uint64_t first_that_counts(Space space) {
  return space == Space::shared ? running.block_first : running.launch_first;
}

template <int size> void note_read(Space space, const void* number, const Site& at) {
  ShadowEntry& entry = shadow_of<size>(space, number);
  const std::uint64_t first = first_that_counts(space);
  if (space == Space::shared && (entry.write & ~atomic_bit) < first) unset_shared_read(size, at);
  if ((entry.write & ~atomic_bit) >= first && entry.write != running.stamp)
    check_before_read(entry, space, number, size, at);
  if (entry.read == running.stamp || (entry.read >= first && keeps_reader(entry))) return;
  entry.read = running.stamp, entry.read_site = short_site(at);
}

template <int size> void note_write(Space space, const void* number, const Site& at, bool atomic = false) {
  ShadowEntry& entry = shadow_of<size>(space, number);
  const std::uint64_t first = first_that_counts(space);
  const bool others = ((entry.write & ~atomic_bit) >= first && entry.write != running.stamp) ||
                      (entry.read >= first && entry.read != running.stamp);
  if (others) check_before_write(entry, space, number, size, at, atomic);
  entry.write = running.stamp | (atomic ? atomic_bit : 0), entry.write_site = short_site(at);
}

}  // namespace whence::gpu::emulator
