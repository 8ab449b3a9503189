// What tests of the emulator share.
#pragma once

#include "tests/support/programs.h"
#include "tests/support/tensors.h"

namespace whence::test {

// CHECKs that each part is in the text.
inline void says(const std::string& text, const std::vector<std::string>& parts) {
  CAPTURE(text);
  for (const std::string& part : parts) CHECK_MESSAGE(has(text, part), part);
}

}  // namespace whence::test
