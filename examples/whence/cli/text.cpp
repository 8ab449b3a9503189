#include "examples/whence/cli/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <sstream>

#include "examples/whence/cli/unicode.h"
#include "tensor/error.h"

namespace whence {

std::size_t display_width(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const CodePoint code = first_code_point(text);
    columns += columns_of(code);
    text.remove_prefix(code.bytes);
  }
  return columns;
}

std::string cut_to_width(std::string_view text, std::size_t columns) {
  std::size_t bytes = 0, used = 0;
  while (bytes < text.size()) {
    const CodePoint code = first_code_point(text.substr(bytes));
    if (used + columns_of(code) > columns) break;
    used += columns_of(code);
    bytes += code.bytes;
  }
  return std::string(text.substr(0, bytes));
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

namespace {

std::string in_hex(const char* format, std::uint32_t code) {
  std::array<char, 16> written{};
  std::snprintf(written.data(), written.size(), format, static_cast<unsigned>(code));
  return written.data();
}

}  // namespace

std::string one_line(std::string_view text) {
  std::string line;
  while (!text.empty()) {
    const CodePoint code = first_code_point(text);
    if (code.value == '\n')
      line += "\\n";
    else if (code.value == '\t')
      line += "\\t";
    else if (!code.valid || code.value < 0x20 || code.value == 0x7F)
      line += in_hex("\\x%02x", code.value);
    else if (acts_unseen(code))
      line += in_hex("\\u{%x}", code.value);
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
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("-_=./,:+%@").find(c) != std::string::npos;
  };
  const auto quoted = [&](const std::string& word) {
    if (!word.empty() && std::ranges::all_of(word, plain)) return word;
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
