// The commit that this program was built of. A run's record names the version alone: what a file means changes with
// that.
#pragma once

#include <string>

namespace whence {

[[nodiscard]] std::string commit();  // "commit 4729dbe1, modified"; empty where the build knew of none (commit.cmake)

// "whence 0.1.0 (commit 4729dbe1)"
[[nodiscard]] inline std::string program_and_version() {
  return "whence " WHENCE_VERSION + (commit().empty() ? "" : " (" + commit() + ')');
}

}  // namespace whence
