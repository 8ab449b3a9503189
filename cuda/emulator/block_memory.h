// The shared memory of the block that runs: its bytes, their shadow, and who asked for which part of them.
#pragma once

#include <cstddef>
#include <vector>

#include "cuda/emulator/shadow.h"

namespace whence::gpu::emulator {

class BlockMemory {
 public:
  static BlockMemory& instance();

  void begin_block(std::size_t bytes);  // all of it unset: 0xFF, which is NaN in every floating dtype
  // The next part for a thread that has asked for `parts` parts and `used` bytes before. Stops the launch when the
  // threads of the block ask for different things, or for more than the launch gave.
  std::byte* part(int parts, std::size_t used, std::size_t bytes, const Site& at);
  void forget() { shadow_.assign(shadow_.size(), ShadowEntry{}); }  // when stamps begin anew
  ShadowEntry& shadow(const void* number) {
    return shadow_[static_cast<std::size_t>(static_cast<const std::byte*>(number) - bytes_)];
  }

 private:
  struct Part {
    std::size_t bytes;
    int thread;
    std::int32_t site;
  };

  std::byte* bytes_ = nullptr;
  std::size_t size_ = 0, reserved_ = 0;
  std::vector<ShadowEntry> shadow_;  // one for each byte, of which those of first bytes of numbers are used
  std::vector<Part> parts_;          // as the first thread of the block asked for them
};

}  // namespace whence::gpu::emulator
