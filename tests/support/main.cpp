// The test program's main: doctest's own. `whence_tests --help` lists what it can do.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <filesystem>

#include "tests/support/places.h"

namespace whence::test {

const std::string& source_folder() {
  static const std::string folder = WHENCE_SOURCE_DIR;
  return folder;
}

const std::string& program_folder() {
  static const std::string folder = WHENCE_PROGRAM_DIR;
  return folder;
}

std::vector<std::string> documents() {
  namespace fs = std::filesystem;
  std::vector<std::string> found;
  for (auto entry = fs::recursive_directory_iterator(source_folder()); entry != fs::end(entry); ++entry) {
    const std::string name = entry->path().filename();
    if (name == "build" || name == "runs" || name == ".git") entry.disable_recursion_pending();
    if (name == "README.md") found.push_back(fs::relative(entry->path(), source_folder()));
  }
  return found;
}

}  // namespace whence::test
