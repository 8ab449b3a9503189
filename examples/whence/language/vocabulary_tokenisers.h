// Tokenisers that are a list of tokens, read from a file. Used by tokeniser.cpp.
#pragma once

#include <string>
#include <vector>

#include "examples/whence/language/tokeniser.h"

namespace whence::language {

// The tokens without "unknown", which is token 0. FileError with `place` when one is empty, occurs twice, or is not
// UTF-8 (for characters: not one code point).
[[nodiscard]] TokeniserPointer characters_from(std::vector<std::string> characters, const std::string& place);
[[nodiscard]] TokeniserPointer words_from(std::vector<std::string> words, const std::string& place);

}  // namespace whence::language
