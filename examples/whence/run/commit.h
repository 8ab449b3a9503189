// The commit that this program was built from. A run's record names only the version, on which the meaning of a file
// depends.
#pragma once

#include <string>

namespace whence {

[[nodiscard]] std::string commit();  // "commit 4729dbe1, modified"; empty if unknown to the build (commit.cmake)

// "whence 0.1.0 (commit 4729dbe1)"
[[nodiscard]] inline std::string program_and_version() {
  return "whence " WHENCE_VERSION + (commit().empty() ? "" : " (" + commit() + ')');
}

}  // namespace whence
