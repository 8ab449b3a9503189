// How GPT-2 cuts text into pieces before anything is merged, and how its files spell bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace whence::language {

// Words, numbers, punctuation and white space:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+    (Radford et al. 2019, encoder.py)
// Bytes that are not UTF-8, which the pattern never meets, count as punctuation. The length in bytes of the first
// piece, which depends on `text` alone, not on text before. REQUIRES: text is not empty.
[[nodiscard]] std::size_t first_piece(std::string_view text);

// Each of the 256 bytes is a printable character, so that tokens can stand between blanks. '!' to '~', U+00A1 to U+00AC
// and U+00AE to U+00FF stand for themselves. The other 68 bytes, in order, are U+0100, U+0101, ...
[[nodiscard]] std::string spelled(std::string_view bytes);  // as UTF-8
// Nothing when a character stands for no byte.
[[nodiscard]] std::optional<std::string> unspelled(std::string_view text);

}  // namespace whence::language
