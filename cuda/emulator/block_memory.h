// The shared memory of the running block, and its shadow.
#pragma once

#include <cstddef>
#include <vector>

#include "cuda/emulator/shadow.h"

namespace whence::gpu::emulator {

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

}  // namespace whence::gpu::emulator
