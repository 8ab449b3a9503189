#include "cuda/emulator/shadow.h"

#include <cstdlib>
#include <cstring>

#include "cuda/emulator/arena.h"
#include "cuda/emulator/block_run.h"
#include "cuda/emulator/pointers.h"

namespace whence::gpu::emulator {
namespace {

bool of_other_block(std::uint64_t stamp) { return stamp < running.block_first; }

std::string who(std::uint64_t stamp) {
  return of_other_block(stamp) ? "another block" : to_text("thread ", running.block_run->thread_of(stamp));
}

std::string where(Space space, const void* number, int size) {
  if (space == Space::shared) return to_text(size, " bytes of shared memory");
  const Arena& arena = Arena::instance();
  std::size_t offset = 0, block = 0;
  const std::byte* const device_address = arena.address_of(number);
  if (!arena.find_block(device_address, &offset, &block)) return to_text(size, " bytes of global memory");
  return to_text(size, " bytes of global memory (", offset, " bytes into ", bytes_text(block), ")");
}

[[noreturn]] void race(const char* own, const char* other, std::uint64_t stamp, std::int32_t site, Space space,
    const void* number, int size, const Site& at) {
  const bool block = of_other_block(stamp);
  stop(at, to_text(own, ' ', where(space, number, size), " that ", who(stamp), ' ', other, " at ",
               whence::to_string(long_site(site)),
               block ? "; blocks of one launch have no order: a launch of its own is required for one of them"
                     : ", with no barrier between; a barrier is required"));
}

[[noreturn]] void still_in_flight(
    const char* own, Space space, const void* number, int size, std::int32_t site, const Site& at) {
  stop(at, to_text(own, ' ', where(space, number, size), " that the copy at ", whence::to_string(long_site(site)),
               " is still bringing; cp_async_wait of the thread that asked for it is required, and a barrier behind it "
               "for other threads"));
}

bool conflicts(std::uint64_t stamp) { return of_other_block(stamp) || running.block_run->unordered(stamp); }

}  // namespace

void check_before_read(const ShadowEntry& entry, Space space, const void* number, int size, const Site& at) {
  const std::uint64_t stamp = entry.write & ~atomic_bit;
  if (stamp == in_flight) still_in_flight("reads", space, number, size, entry.write_site, at);
  if (stamp != running.stamp && conflicts(stamp))
    race("reads", "wrote", stamp, entry.write_site, space, number, size, at);
}

void check_before_write(
    const ShadowEntry& entry, Space space, const void* number, int size, const Site& at, bool atomic) {
  const std::uint64_t first = first_that_counts(space), stamp = entry.write & ~atomic_bit;
  const char* const own = atomic ? "adds atomically to" : "writes";
  if (stamp == in_flight) still_in_flight(own, space, number, size, entry.write_site, at);
  const bool both_atomic = atomic && (entry.write & atomic_bit) != 0;
  if (stamp >= first && stamp != running.stamp && !both_atomic && conflicts(stamp))
    race(own, "wrote", stamp, entry.write_site, space, number, size, at);
  if (entry.read >= first && entry.read != running.stamp && conflicts(entry.read))
    race(own, "read", entry.read, entry.read_site, space, number, size, at);
}

bool keeps_reader(const ShadowEntry& entry) { return conflicts(entry.read); }

void unset_shared_read(int size, const Site& at) {
  stop(at, to_text("reads ", size,
               " bytes of shared memory that no thread of the block has written; a write, or a barrier after it, "
               "is missing"));
}

void outside(Space space, bool writes, const void* number, const void* first, const void* end, std::size_t size,
    const Site& at) {
  const char *const does = writes ? "writes" : "reads", *const memory = space == Space::shared ? "shared" : "global";
  if (!first) stop(at, to_text(does, " through a null pointer to ", memory, " memory"));
  const auto begin = reinterpret_cast<std::uintptr_t>(first), at_number = reinterpret_cast<std::uintptr_t>(number);
  const index_t wide = static_cast<index_t>(size), index = (static_cast<index_t>(at_number - begin)) / wide;
  stop(at, to_text(does, " element ", index, " of ", memory, " memory that has ",
               (reinterpret_cast<std::uintptr_t>(end) - begin) / size, " elements of ", size, " bytes"));
}

void misaligned(const void* number, std::size_t size, const Site& at) {
  stop(at,
      to_text("an access of ", size, " bytes at an address that is ", reinterpret_cast<std::uintptr_t>(number) % size,
          " bytes past a multiple of them; aligned packs are required"));
}

std::byte* kernel_bytes(const Storage& storage) {
  const Arena& arena = Arena::instance();
  if (storage.size() == 0) return arena.memory();
  if (storage.device().is_cpu() || !arena.contains(storage.bytes()))
    fail("kernel", "a tensor on ", whence::to_string(storage.device()), " given; one on cuda:0 is required");
  return arena.bytes_at(storage.bytes());
}

void prepare_shadows() {
  if (shadows.memory) return;
  const Arena& arena = Arena::instance();
  for (std::size_t shift = 0; shift < 5; ++shift)
    shadows.of_size[shift] = reinterpret_cast<ShadowEntry*>(reserve((arena.reserved() >> shift) * sizeof(ShadowEntry)));
  shadows.memory = arena.memory();
}

BlockMemory& BlockMemory::instance() {
  static BlockMemory& memory = *new BlockMemory;
  return memory;
}

void BlockMemory::begin_block(std::size_t bytes) {
  if (bytes > reserved_) {
    std::free(bytes_);
    reserved_ = (bytes + 255) / 256 * 256;
    bytes_ = static_cast<std::byte*>(std::aligned_alloc(256, reserved_));
    shadow_.resize(reserved_);
  }
  size_ = bytes;
  if (bytes > 0) std::memset(bytes_, 0xFF, bytes);
}

std::byte* BlockMemory::part(std::size_t used, std::size_t bytes, const Site& at) {
  if (used + bytes > size_)
    stop(at, to_text(used + bytes, " bytes of shared memory asked for; the launch gives ", size_,
                 "; give it more by shared_bytes"));
  return bytes_ + used;
}

}  // namespace whence::gpu::emulator
