// The positional schemes, as programs list them.
#pragma once

#include <string>
#include <vector>

#include "nn/scheme.h"

namespace whence {

[[nodiscard]] std::vector<std::string> scheme_names();  // for a shell to complete

// For reference pages: with paper, equation and options.
[[nodiscard]] std::string description(const SchemeInfo& scheme);

}  // namespace whence
