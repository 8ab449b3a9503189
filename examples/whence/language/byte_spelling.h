// How GPT-2's files spell bytes: each of the 256 is a printable character, so that tokens can stand between blanks.
// '!' to '~', U+00A1 to U+00AC and U+00AE to U+00FF stand for themselves. The other 68 bytes, in order, are U+0100,
// U+0101, ...
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace whence::language {

[[nodiscard]] std::string spelled(std::string_view bytes);  // as UTF-8
// Nothing when a character stands for no byte.
[[nodiscard]] std::optional<std::string> unspelled(std::string_view text);

}  // namespace whence::language
