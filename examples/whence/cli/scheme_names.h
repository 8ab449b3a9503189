// The positional schemes, as programs list them.
#pragma once

#include <string>
#include <vector>

namespace whence {

[[nodiscard]] std::vector<std::string> scheme_names();  // for "did you mean"

}  // namespace whence
