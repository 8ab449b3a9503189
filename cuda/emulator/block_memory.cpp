#include "cuda/emulator/block_memory.h"

#include <cstdlib>
#include <cstring>

namespace whence::gpu::emulator {

BlockMemory& BlockMemory::instance() {
  static BlockMemory& memory = *new BlockMemory;
  return memory;
}

void BlockMemory::begin_block(std::size_t bytes) {
  if (bytes > reserved_) {
    std::free(bytes_);
    reserved_ = (bytes + 255) / 256 * 256;
    bytes_ = static_cast<std::byte*>(std::aligned_alloc(256, reserved_));
  }
  size_ = bytes;
  arrays_.clear();
  if (shadow_.size() < bytes) shadow_.resize(bytes);
  if (bytes > 0) std::memset(bytes_, 0xFF, bytes);
}

std::byte* BlockMemory::part(int parts, std::size_t used, std::size_t bytes, const Site& at) {
  const std::size_t index = static_cast<std::size_t>(parts);
  if (used + bytes > size_) {
    stop(at, to_text(used + bytes, " bytes of shared memory asked for; the launch gives ", size_,
                 "; give it more by shared_bytes"));
  }
  if (index == arrays_.size()) arrays_.push_back({bytes, running.thread, short_site(at)});
  const SharedArray& first = arrays_[index];
  if (first.bytes != bytes) {
    stop(at, to_text("asks for ", bytes, " bytes as part ", parts, " of the shared memory, thread ", first.thread,
                 " for ", first.bytes, " at ", whence::to_string(long_site(first.site)),
                 "; the same parts in the same order are required of all threads of a block"));
  }
  return bytes_ + used;
}

ShadowEntry& shared_shadow(const void* number) { return BlockMemory::instance().shadow(number); }

}  // namespace whence::gpu::emulator
