// The test program's main: doctest's own. `whence_tests --help` lists what it can do.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include "tests/places.h"

namespace whence::test {

const std::string& source_folder() {
  static const std::string folder = WHENCE_SOURCE_DIR;
  return folder;
}

const std::string& program_folder() {
  static const std::string folder = WHENCE_PROGRAM_DIR;
  return folder;
}

}  // namespace whence::test
