#include "examples/whence/report/deflate.h"

#include <algorithm>
#include <new>

#ifdef WHENCE_ZLIB
#include <zlib.h>
#endif

namespace whence::report {

#ifdef WHENCE_ZLIB
std::vector<std::uint8_t> deflated(std::span<const std::uint8_t> bytes) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY) != Z_OK)  // -15: raw
    throw std::bad_alloc();
  std::vector<std::uint8_t> result;
  std::vector<std::uint8_t> part(std::size_t{1} << 20);
  std::uint8_t none = 0;
  for (int state = Z_OK; state != Z_STREAM_END;) {
    if (stream.avail_in == 0) {  // zlib counts in 32 bits
      const std::size_t taken = std::min(bytes.size(), std::size_t{1} << 30);
      stream.next_in = const_cast<std::uint8_t*>(bytes.empty() ? &none : bytes.data());
      stream.avail_in = static_cast<unsigned>(taken);
      bytes = bytes.subspan(taken);
    }
    stream.next_out = part.data();
    stream.avail_out = static_cast<unsigned>(part.size());
    state = deflate(&stream, bytes.empty() ? Z_FINISH : Z_NO_FLUSH);
    result.insert(result.end(), part.data(), stream.next_out);
  }
  deflateEnd(&stream);
  return result;
}
#else
std::vector<std::uint8_t> deflated(std::span<const std::uint8_t> bytes) {
  constexpr std::size_t max_block = 65535;
  std::vector<std::uint8_t> result;
  do {
    const std::size_t size = std::min(bytes.size(), max_block);
    const auto low = [](std::size_t number) { return static_cast<std::uint8_t>(number & 0xff); };
    const bool last = size == bytes.size();
    result.insert(
        result.end(), {static_cast<std::uint8_t>(last), low(size), low(size >> 8), low(~size), low(~size >> 8)});
    result.insert(result.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    bytes = bytes.subspan(size);
    if (last) break;
  } while (true);
  return result;
}
#endif

}  // namespace whence::report
