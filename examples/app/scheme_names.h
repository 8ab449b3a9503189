// The names of the positional schemes, for a shell to complete.
#pragma once

#include <string>
#include <vector>

namespace whence {

[[nodiscard]] std::vector<std::string> scheme_names();

}  // namespace whence
