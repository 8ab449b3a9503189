// Where tests find the sources and the built programs.
#pragma once

#include <string>
#include <vector>

namespace whence::test {

const std::string& source_folder();
const std::string& program_folder();
std::vector<std::string> documents();  // every README.md of the sources, from their folder

}  // namespace whence::test
