// GPT-2's pre-tokenisation: text is cut into words, numbers, punctuation and white space before anything is merged.
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+    (Radford et al. 2019, encoder.py)
// Bytes that are not UTF-8, which the pattern never meets, count as punctuation.
#pragma once

#include <cstddef>
#include <string_view>

namespace whence::language {

// The length in bytes of the first piece. It depends on `text` alone, not on text before. REQUIRES: text is not empty.
[[nodiscard]] std::size_t first_piece(std::string_view text);

}  // namespace whence::language
