#include "examples/whence/report/deflate.h"

#include <algorithm>
#include <bit>
#include <cstring>
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

// Lengths and distances have ranges that double every 2^`log` codes, section 3.2.5: a code, and bits within its range.
struct Range {
  std::uint32_t code, extra_value;
  int extra_bits;
};
Range range_of(std::size_t number, int log) {
  const auto value = static_cast<std::uint32_t>(number);
  const int bits = std::max(0, static_cast<int>(std::bit_width(value)) - 1 - log);
  return {(static_cast<std::uint32_t>(bits) << log) + (value >> bits), value & ((1u << bits) - 1), bits};
}

// `distance` bytes back, `length` of them.
void write_match(BitWriter& out, std::size_t length, std::size_t distance) {
  const Range of_length = length == longest ? Range{28, 0, 0} : range_of(length - 3, 2),
              of_distance = range_of(distance - 1, 1);
  write_symbol(out, 257 + of_length.code);
  out.bits(of_length.extra_value, of_length.extra_bits);
  out.code(of_distance.code, 5);
  out.bits(of_distance.extra_value, of_distance.extra_bits);
}

}  // namespace

std::vector<std::uint8_t> deflated(std::span<const std::uint8_t> bytes) {
  BitWriter out;
  out.bits(1, 1), out.bits(1, 2);  // the last block, of fixed codes
  constexpr std::size_t none = ~std::size_t{0};
  std::vector<std::size_t> last(1 << 16, none);  // where these four bytes, by their hash, stood last
  const auto place_of = [&](std::size_t at) -> std::size_t& {
    std::uint32_t four = 0;
    std::memcpy(&four, &bytes[at], sizeof four);
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
