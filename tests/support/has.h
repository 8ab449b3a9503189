// A part of a text.
#pragma once

#include <string>

namespace whence::test {

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace whence::test
