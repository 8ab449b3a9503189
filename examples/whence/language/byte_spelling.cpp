#include "examples/whence/language/byte_spelling.h"

#include <algorithm>
#include <array>

#include "examples/whence/cli/unicode.h"

namespace whence::language {
namespace {

// The code point of each byte.
constexpr std::array<std::uint32_t, 256> code_points = [] {
  std::array<std::uint32_t, 256> codes{};
  std::uint32_t next = 256;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    codes[byte] = itself ? byte : next++;
  }
  return codes;
}();

}  // namespace

std::string spelled(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) append_utf8(text, code_points[static_cast<unsigned char>(c)]);
  return text;
}

std::optional<std::string> unspelled(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    const CodePoint code = first_code_point(text);
    const auto byte = std::ranges::find(code_points, code.value);
    if (!code.valid || byte == code_points.end()) return std::nullopt;
    bytes += static_cast<char>(byte - code_points.begin());
    text.remove_prefix(code.bytes);
  }
  return bytes;
}

}  // namespace whence::language
