#include "examples/whence/language/gpt2_text.h"

#include <algorithm>
#include <array>

#include "examples/whence/cli/unicode.h"

namespace whence::language {
namespace {

enum class Kind : unsigned char { letter, number, space, other };

Kind kind_of(const CodePoint& code) {
  if (is_letter(code)) return Kind::letter;
  if (is_white_space(code)) return Kind::space;
  return is_number(code) ? Kind::number : Kind::other;
}

// Returns the bytes of the run of one kind at the front of `text`, and of its last character.
struct Run {
  std::size_t bytes = 0, last = 0;
};

Run run_of(std::string_view text, Kind kind) {
  Run run;
  while (run.bytes < text.size()) {
    const CodePoint code = first_code_point(text.substr(run.bytes));
    if (kind_of(code) != kind) break;
    run.bytes += code.bytes;
    run.last = code.bytes;
  }
  return run;
}

// Maps each byte to its code point.
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

std::size_t first_piece(std::string_view text) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
    if (text.starts_with(ending)) return ending.size();
  const std::size_t blank = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  const Kind kind = kind_of(first_code_point(text.substr(blank)));
  if (kind != Kind::space) return blank + run_of(text.substr(blank), kind).bytes;
  // \s+(?!\S) gives back the last character if text follows, so that a blank stays with its word; \s+ takes a single
  // one.
  const Run run = run_of(text, Kind::space);
  return run.bytes == text.size() || run.bytes == run.last ? run.bytes : run.bytes - run.last;
}

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
