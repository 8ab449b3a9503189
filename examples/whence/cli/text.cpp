#include "examples/whence/cli/text.h"

#include <locale.h>
#include <wchar.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <sstream>
#include <utility>

#include "tensor/error.h"

namespace whence {
namespace {

// The character that a text begins with: complete if as many bytes of it are there as it has.
struct Begun {
  std::uint32_t code;
  std::size_t length, bytes;  // length 0: no character begins so
};

Begun begun(std::string_view text) {
  const auto byte = [&](std::size_t k) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[k])); };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, 1};
  const std::size_t length = lead < 0xC2 || lead > 0xF4 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // Range of the second byte: excludes overlong forms, surrogates and values above U+10FFFF (table 3-7 of the standard).
  const std::uint32_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const std::uint32_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  Begun found{lead & (0xFFu >> (length + 1)), length, 1};
  for (std::size_t& k = found.bytes; k < std::min(length, text.size()); ++k) {
    if (byte(k) < (k == 1 ? low : 0x80) || byte(k) > (k == 1 ? high : 0xBF)) break;
    found.code = found.code << 6 | (byte(k) & 0x3F);
  }
  return found;
}

using CodeRange = std::pair<std::uint32_t, std::uint32_t>;  // its first code point and its last

bool within(std::span<const CodeRange> ranges, std::uint32_t code) {
  return std::ranges::any_of(ranges, [&](const auto& range) { return code >= range.first && code <= range.second; });
}

// True for control characters, and characters that have no width, join others, or change the direction of reading.
bool acts_unseen(const CodePoint& code) {
  constexpr CodeRange ranges[] = {{0, 0x1F}, {0x7F, 0x9F}, {0xAD, 0xAD}, {0x61C, 0x61C}, {0x180B, 0x180E},
      {0x200B, 0x200F}, {0x2028, 0x202E}, {0x2060, 0x206F}, {0xFEFF, 0xFEFF}, {0xFFF0, 0xFFFB}, {0xFFFE, 0xFFFF},
      {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF}};
  return (code.value < 0x20 || code.value >= 0x7F) && within(ranges, code.value);
}

// Returns the width that the C library knows: 0 for combining marks, 2 for wide characters; 1 where it knows none.
std::size_t columns_of(const CodePoint& code) {
  static const locale_t unicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (!code.valid || code.value < 0x80 || !unicode) return 1;
  const locale_t before = uselocale(unicode);
  const int width = wcwidth(static_cast<wchar_t>(code.value));
  uselocale(before);
  return width < 0 ? 1 : static_cast<std::size_t>(width);
}

}  // namespace

CodePoint first_code_point(std::string_view text) {
  const auto [code, length, bytes] = begun(text);
  return bytes == length ? CodePoint{code, length} : CodePoint{static_cast<unsigned char>(text[0]), 1, false};
}

bool is_white_space(const CodePoint& code) {
  constexpr CodeRange spaces[] = {{0x85, 0x85}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
      {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
  if (code.value < 0x80) return code.value == ' ' || (code.value >= '\t' && code.value <= '\r');
  return code.valid && within(spaces, code.value);
}

std::string Utf8Stream::push(std::string_view bytes) {
  kept_.append(bytes);
  std::string out;
  std::string_view rest = kept_;
  while (!rest.empty()) {
    const Begun next = begun(rest);
    if (next.bytes < next.length && next.bytes == rest.size()) break;  // may still become a character
    out += next.bytes == next.length ? rest.substr(0, next.bytes) : replacement_character;
    rest.remove_prefix(next.bytes);
  }
  kept_ = std::string(rest);
  return out;
}

std::string Utf8Stream::finish() { return std::exchange(kept_, {}).empty() ? "" : std::string(replacement_character); }

std::string cut_to_width(std::string_view text, std::size_t columns) {
  std::size_t bytes = 0;
  for (std::size_t used = 0; bytes < text.size();) {
    const CodePoint code = first_code_point(text.substr(bytes));
    if ((used += columns_of(code)) > columns) break;
    bytes += code.bytes;
  }
  return std::string(text.substr(0, bytes));
}

std::size_t display_width(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const CodePoint code = first_code_point(text);
    columns += columns_of(code);
    text.remove_prefix(code.bytes);
  }
  return columns;
}

std::string trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(' '), text.size());
  return std::string(text.substr(begin, text.find_last_not_of(' ') + 1 - begin));
}

std::vector<std::string> wrapped(std::string_view text, std::size_t columns) {
  std::vector<std::string> lines;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;)
    if (!lines.empty() && display_width(lines.back()) + 1 + display_width(word) <= columns)
      lines.back() += ' ' + word;
    else
      lines.push_back(word);
  return lines;
}

std::string one_line(std::string_view text) {
  const auto in_hex = [](const char* format, const CodePoint& code) {
    std::array<char, 16> written{};
    std::snprintf(written.data(), written.size(), format, static_cast<unsigned>(code.value));
    return std::string(written.data());
  };
  std::string line;
  while (!text.empty()) {
    const CodePoint code = first_code_point(text);
    if (code.value == '\n')
      line += "\\n";
    else if (code.value == '\t')
      line += "\\t";
    else if (!code.valid || code.value < 0x20 || code.value == 0x7F)
      line += in_hex("\\x%02x", code);
    else if (acts_unseen(code))
      line += in_hex("\\u{%x}", code);
    else
      line += text.substr(0, code.bytes);
    text.remove_prefix(code.bytes);
  }
  return line;
}

std::string message_line(std::string_view text) {
  constexpr std::size_t longest = 500;
  const std::string line = one_line(text);
  std::vector<std::size_t> begins;  // of characters
  for (std::size_t at = 0; at < line.size(); ++at)
    if ((line[at] & 0xC0) != 0x80) begins.push_back(at);
  if (begins.size() <= longest) return line;
  // Keeps both ends: the fault is in one, the requirement in the other.
  const std::size_t kept = (longest - 3) / 2;
  return line.substr(0, begins[kept]) + "..." + line.substr(begins[begins.size() - kept]);
}

std::string terminal_text(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of("\n\t"), text.size());
    shown += one_line(text.substr(0, end));
    shown += text.substr(end, 1);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return shown;
}

std::string shell_command(const std::vector<std::string>& words) {
  constexpr const char* plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=./,:+%@";
  const auto quoted = [&](const std::string& word) {
    if (!word.empty() && word.find_first_not_of(plain) == word.npos) return word;
    std::string text = "'";
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + '\'';
  };
  return joined(words, quoted, " ");
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t longest = 60;
  std::string shown = cut_to_width(text, longest);
  if (shown.size() < text.size()) shown += "...";
  return '"' + one_line(shown) + '"';
}

}  // namespace whence
