// Text functions that all programs share: strict UTF-8, widths on screen, safe output on a terminal, and quoting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace whence {

struct CodePoint {
  std::uint32_t value = 0;  // of an invalid byte: the byte itself
  std::size_t bytes = 1;    // its size in the text
  bool valid = true;        // false: not UTF-8 (overlong forms, surrogates and values above U+10FFFF included)
};

// Returns the code point at the front. REQUIRES: text is not empty.
[[nodiscard]] CodePoint first_code_point(std::string_view text);
inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";  // U+FFFD
[[nodiscard]] bool is_white_space(const CodePoint& code);  // the property White_Space; false for an invalid byte

// Takes bytes, gives whole characters. A sequence that could still become valid is held back. A sequence that cannot
// becomes U+FFFD, one for each longest run that began like a character, as in browsers.
class Utf8Stream {
 public:
  [[nodiscard]] std::string push(std::string_view bytes);
  [[nodiscard]] std::string finish();  // returns an unfinished character at the end, as U+FFFD

 private:
  std::string kept_;
};

// Returns the columns that UTF-8 text takes on a terminal: combining marks 0, wide East Asian characters and emoji 2.
[[nodiscard]] std::size_t display_width(std::string_view text);

// Cuts `text` to at most `columns`, never inside a character.
[[nodiscard]] std::string cut_to_width(std::string_view text, std::size_t columns);

[[nodiscard]] std::string trimmed(std::string_view text);

// Breaks text at white space into lines of at most `columns`; a longer word has its own line.
[[nodiscard]] std::vector<std::string> wrapped(std::string_view text, std::size_t columns);

// Makes any text safe as part of one line on a terminal: control characters, bytes that are no character, and invisible
// characters that change direction or join are written out (\n, \x1b, \xff, \u{202e}).
[[nodiscard]] std::string one_line(std::string_view text);

// The same, at most 500 characters, "..." in the middle: an error may quote a whole file.
[[nodiscard]] std::string message_line(std::string_view text);

// Likewise for several lines: line ends and tabs stay.
[[nodiscard]] std::string terminal_text(std::string_view text);

// Formats words as a user types them to a shell, quoted where needed.
[[nodiscard]] std::string shell_command(const std::vector<std::string>& words);

// Formats typed text for an error: in quotation marks, escaped, shortened when long.
[[nodiscard]] std::string in_quotes(std::string_view text);

}  // namespace whence
