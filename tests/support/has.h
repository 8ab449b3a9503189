// Parts of a text.
#pragma once

#include <doctest/doctest.h>
#include <string>
#include <vector>

namespace whence::test {

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// CHECKs that the text has each part.
inline void says(const std::string& text, const std::vector<std::string>& parts) {
  CAPTURE(text);
  for (const std::string& part : parts) CHECK_MESSAGE(has(text, part), part);
}

}  // namespace whence::test
