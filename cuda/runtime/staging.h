// Copies to a GPU through two pinned buffers: the host fills one while the other is sent. The emulator runs this too,
// over a line that delivers as late as it may.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <mutex>

namespace whence::gpu {

inline constexpr std::size_t staging_bytes = std::size_t{4} << 20;  // of one buffer

// A Line provides:
//   char* pinned(bytes)         memory that it sends from, never given back
//   send(from, to, bytes)       begins to send; `from` must not change until that is over
//   mark(Mark&)                 remembers all that was sent so far
//   wait(const Mark&)           returns when that has arrived
template <class Line> class Staging {
 public:
  void send(const char* from, char* to, std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    while (bytes > 0) {
      Buffer& buffer = buffers_[next_];
      next_ = 1 - next_;
      if (buffer.memory)
        Line::wait(buffer.sent);
      else
        buffer.memory = Line::pinned(staging_bytes);
      const std::size_t part = std::min(bytes, staging_bytes);
      std::memcpy(buffer.memory, from, part);
      Line::send(buffer.memory, to, part);
      Line::mark(buffer.sent);
      from += part, to += part, bytes -= part;
    }
  }

 private:
  struct Buffer {
    char* memory = nullptr;
    typename Line::Mark sent{};
  };
  std::mutex mutex_;
  std::array<Buffer, 2> buffers_;
  std::size_t next_ = 0;
};

}  // namespace whence::gpu
