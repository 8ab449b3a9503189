// Where tests find the sources and the built programs.
#pragma once

#include <string>

namespace whence::test {

const std::string& source_folder();
const std::string& program_folder();

}  // namespace whence::test
