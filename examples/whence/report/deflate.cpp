#include "examples/whence/report/deflate.h"

#include <algorithm>
#include <utility>

namespace whence::report {
namespace {

constexpr std::size_t window = 32768, shortest = 4, longest = 258;

// Bits from the lowest up, but codes with their highest bit first.
class BitWriter {
 public:
  void bits(std::uint32_t value, int count) {
    held_ |= static_cast<std::uint64_t>(value) << count_;
    for (count_ += count; count_ >= 8; count_ -= 8, held_ >>= 8) bytes_.push_back(static_cast<std::uint8_t>(held_));
  }
  void code(std::uint32_t value, int count) {
    std::uint32_t turned = 0;
    for (int k = 0; k < count; ++k) turned |= (value >> k & 1u) << (count - 1 - k);
    bits(turned, count);
  }
  std::vector<std::uint8_t> finished() {
    if (count_ > 0) bytes_.push_back(static_cast<std::uint8_t>(held_));
    return std::move(bytes_);
  }

 private:
  std::vector<std::uint8_t> bytes_;
  std::uint64_t held_ = 0;
  int count_ = 0;
};

// The fixed codes of literals and lengths, RFC 1951 section 3.2.6.
void write_symbol(BitWriter& out, std::uint32_t symbol) {
  if (symbol < 144) return out.code(0x30 + symbol, 8);
  if (symbol < 256) return out.code(0x190 + symbol - 144, 9);
  if (symbol < 280) return out.code(symbol - 256, 7);
  out.code(0xC0 + symbol - 280, 8);
}

// A match: `distance` bytes back, `length` of them. Ranges double every 2^`per_doubling_log` codes, section 3.2.5.
struct Range {
  std::uint32_t code, extra_value;
  int extra_bits;
};
Range range_of(std::uint32_t value, int per_doubling_log) {
  const std::uint32_t codes = 1u << per_doubling_log;
  if (value < 2 * codes) return {value, 0, 0};
  int bits = 0;
  while (value >> bits >= 2 * codes) ++bits;
  return {static_cast<std::uint32_t>(bits) * codes + (value >> bits), value & ((1u << bits) - 1), bits};
}

void write_match(BitWriter& out, std::size_t length, std::size_t distance) {
  Range range = range_of(static_cast<std::uint32_t>(length - 3), 2);
  if (length == longest) range = {28, 0, 0};
  write_symbol(out, 257 + range.code);
  out.bits(range.extra_value, range.extra_bits);
  range = range_of(static_cast<std::uint32_t>(distance - 1), 1);
  out.code(range.code, 5);
  out.bits(range.extra_value, range.extra_bits);
}

}  // namespace

std::vector<std::uint8_t> deflated(std::span<const std::uint8_t> bytes) {
  BitWriter out;
  out.bits(1, 1), out.bits(1, 2);  // the last block, of fixed codes
  constexpr std::size_t none = ~std::size_t{0};
  std::vector<std::size_t> last(1 << 16, none);  // where these four bytes, by their hash, stood last
  const auto place_of = [&](std::size_t at) -> std::size_t& {
    const std::uint32_t four = bytes[at] | static_cast<std::uint32_t>(bytes[at + 1]) << 8 |
                               static_cast<std::uint32_t>(bytes[at + 2]) << 16 |
                               static_cast<std::uint32_t>(bytes[at + 3]) << 24;
    return last[four * 2654435761u >> 16];
  };
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t most = std::min(longest, bytes.size() - at);
    std::size_t length = 0, from = none;
    if (most >= shortest) {
      std::size_t& place = place_of(at);
      from = std::exchange(place, at);
      while (from != none && at - from <= window && length < most && bytes[from + length] == bytes[at + length])
        ++length;
    }
    if (length < shortest) {
      write_symbol(out, bytes[at++]);
      continue;
    }
    write_match(out, length, at - from);
    for (const std::size_t end = at + length; ++at < end;)
      if (at + shortest <= bytes.size()) place_of(at) = at;
  }
  write_symbol(out, 256);
  return out.finished();
}

}  // namespace whence::report
