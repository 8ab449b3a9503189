// The shared memory of the running block: its bytes, their shadow, and its parts.
#pragma once

#include <cstddef>
#include <vector>

#include "cuda/emulator/shadow.h"

namespace whence::gpu::emulator {

class BlockMemory {
 public:
  static BlockMemory& instance();

  void begin_block(std::size_t bytes);  // all bytes unset: 0xFF, which is NaN in every floating dtype
  // Returns the next part, for a thread that has `parts` parts and `used` bytes so far. Stops the launch if the threads
  // of the block request different parts, or more than the launch gave.
  std::byte* part(int parts, std::size_t used, std::size_t bytes, const Site& at);
  void forget() { shadow_.assign(shadow_.size(), ShadowEntry{}); }  // when stamps are numbered anew
  ShadowEntry& shadow(const void* number) {
    return shadow_[static_cast<std::size_t>(static_cast<const std::byte*>(number) - bytes_)];
  }

 private:
  struct SharedArray {
    std::size_t bytes;
    int thread;
    std::int32_t site;
  };

  std::byte* bytes_ = nullptr;
  std::size_t size_ = 0, reserved_ = 0;
  std::vector<ShadowEntry> shadow_;  // one for each byte; those of the first bytes of numbers are used
  std::vector<SharedArray> arrays_;  // as the first thread of the block requested them
};

}  // namespace whence::gpu::emulator
