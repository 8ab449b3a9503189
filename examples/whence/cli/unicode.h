// Strict reading of UTF-8, properties of a code point (white space, width), and a stream of bytes printed in whole
// characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace whence {

struct CodePoint {
  std::uint32_t value = 0;  // of an invalid byte: the byte itself
  std::size_t bytes = 1;    // its size in the text
  bool valid = true;        // false: not UTF-8 (overlong forms, surrogates and values above U+10FFFF included)
};

// The code point at the front. REQUIRES: text is not empty.
[[nodiscard]] CodePoint first_code_point(std::string_view text);
inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";  // U+FFFD

[[nodiscard]] bool is_white_space(const CodePoint& code);  // the property White_Space; false for an invalid byte
// Control characters, and characters that have no width, join others, or change the direction of reading.
[[nodiscard]] bool acts_unseen(const CodePoint& code);

// Columns on a terminal: combining marks 0, wide East Asian characters and emoji 2, all others and invalid bytes 1.
[[nodiscard]] std::size_t columns_of(const CodePoint& code);

// Takes bytes, gives whole characters. A sequence that could still become valid is held back. A sequence that cannot
// becomes U+FFFD, one for each longest run that began like a character, as in browsers.
class Utf8Stream {
 public:
  [[nodiscard]] std::string push(std::string_view bytes);
  [[nodiscard]] std::string finish();  // returns an unfinished character at the end, as U+FFFD

 private:
  std::string kept_;
};

}  // namespace whence
