// GPT-2's rule for cutting text into pieces before any merge, and the spelling of bytes in its files.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace whence::language {

// Words, numbers, punctuation and white space:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+    (Radford et al. 2019, encoder.py)
// Bytes that are not UTF-8, which GPT-2's pattern never sees, count as punctuation. Returns the length in bytes of the
// first piece, which depends on `text` alone, not on text before. REQUIRES: text is not empty.
[[nodiscard]] std::size_t first_piece(std::string_view text);

// Spells each of the 256 bytes as a printable character, so that blanks can separate tokens. '!' to '~', U+00A1 to
// U+00AC and U+00AE to U+00FF are spelled as themselves. The other 68 bytes, in order, are U+0100, U+0101, ...
[[nodiscard]] std::string spelled(std::string_view bytes);  // as UTF-8
// Returns nothing if a character spells no byte.
[[nodiscard]] std::optional<std::string> unspelled(std::string_view text);

}  // namespace whence::language
