#include "examples/whence/language/byte_spelling.h"

#include "examples/whence/cli/unicode.h"

namespace whence::language {

const std::array<std::uint32_t, 256>& spelled_bytes() {
  static const std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> codes{};
    std::uint32_t next = 256;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const bool itself = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      codes[byte] = itself ? byte : next++;
    }
    return codes;
  }();
  return table;
}

std::string spelled(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) append_utf8(text, spelled_bytes()[static_cast<unsigned char>(c)]);
  return text;
}

std::optional<std::string> unspelled(std::string_view text) {
  static const std::array<int, 324> byte_of = [] {
    std::array<int, 324> bytes{};
    bytes.fill(-1);
    for (int byte = 0; byte < 256; ++byte) bytes[spelled_bytes()[static_cast<std::size_t>(byte)]] = byte;
    return bytes;
  }();
  std::string bytes;
  while (!text.empty()) {
    const CodePoint code = first_code_point(text);
    if (!code.valid || code.value >= byte_of.size() || byte_of[code.value] < 0) return std::nullopt;
    bytes += static_cast<char>(byte_of[code.value]);
    text.remove_prefix(code.bytes);
  }
  return bytes;
}

}  // namespace whence::language
