// Strict numbers, widths on screen, quoting, and the nearest name.
#include "examples/app/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

namespace whence {
namespace {

struct CodeRange {
  std::uint32_t first, last;
};

// The blocks that matter for tables of results; not the whole of Unicode's width tables.
constexpr std::array<CodeRange, 6> zero_width = {
    {{0x0300, 0x036F}, {0x1AB0, 0x1AFF}, {0x200B, 0x200F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}}};
constexpr std::array<CodeRange, 9> double_width = {{{0x1100, 0x115F}, {0x2E80, 0xA4CF}, {0xAC00, 0xD7A3},
    {0xF900, 0xFAFF}, {0xFE30, 0xFE6F}, {0xFF00, 0xFF60}, {0xFFE0, 0xFFE6}, {0x1F300, 0x1FAFF}, {0x20000, 0x3FFFD}}};

template <std::size_t count>
bool within(const std::array<CodeRange, count>& ranges, std::uint32_t code) {
  return std::any_of(
      ranges.begin(), ranges.end(), [code](CodeRange range) { return range.first <= code && code <= range.last; });
}

struct Character {
  std::size_t bytes, columns;
};

// The character at the front of non-empty `text`. A byte that is not valid UTF-8 counts as a character of one column.
Character first_character(std::string_view text) {
  const auto byte = [&text](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const std::uint32_t lead = byte(0);
  const std::size_t length = lead < 0x80 ? 1 : lead >> 5 == 0x6 ? 2 : lead >> 4 == 0xE ? 3 : lead >> 3 == 0x1E ? 4 : 1;
  if (length == 1 || length > text.size()) return {1, 1};
  std::uint32_t code = lead & (0xFFu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if (byte(i) >> 6 != 0x2) return {1, 1};
    code = code << 6 | (byte(i) & 0x3F);
  }
  return {length, within(zero_width, code) ? 0u : within(double_width, code) ? 2u : 1u};
}

}  // namespace

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(value)) return std::nullopt;  // from_chars reads "nan" and "inf"
  }
  return value;
}

template std::optional<int> parse_number<int>(std::string_view);
template std::optional<std::int64_t> parse_number<std::int64_t>(std::string_view);
template std::optional<std::uint64_t> parse_number<std::uint64_t>(std::string_view);
template std::optional<double> parse_number<double>(std::string_view);

std::string number_text(double value) {
  std::array<char, 64> digits{};
  // Left alone, the standard library writes 3e-04 for 0.0003, because that is shorter.
  const double size = std::abs(value);
  const auto format =
      size == 0 || (size >= 1e-5 && size < 1e15) ? std::chars_format::fixed : std::chars_format::general;
  const auto written = std::to_chars(digits.data(), digits.data() + digits.size(), value, format);
  return {digits.data(), written.ptr};
}

std::size_t display_width(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const Character character = first_character(text);
    columns += character.columns;
    text.remove_prefix(character.bytes);
  }
  return columns;
}

std::string cut_to_width(std::string_view text, std::size_t columns) {
  std::size_t bytes = 0, used = 0;
  while (bytes < text.size()) {
    const Character character = first_character(text.substr(bytes));
    if (used + character.columns > columns) break;
    used += character.columns;
    bytes += character.bytes;
  }
  return std::string(text.substr(0, bytes));
}

std::string one_line(std::string_view text) {
  constexpr std::string_view hexadecimal = "0123456789abcdef";
  std::string line;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += "\\n";
    } else if (c == '\t') {
      line += "\\t";
    } else if (code < 0x20 || code == 0x7F) {
      line += {'\\', 'x', hexadecimal[code >> 4], hexadecimal[code & 15]};
    } else {
      line += c;
    }
  }
  return line;
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t longest = 60;
  std::string shown = cut_to_width(text, longest);
  if (shown.size() < text.size()) shown += "...";
  return '"' + one_line(shown) + '"';
}

}  // namespace whence
