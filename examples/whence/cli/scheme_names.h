// The positional schemes, as programs list them.
#pragma once

#include <string>
#include <vector>

namespace whence {

[[nodiscard]] std::vector<std::string> scheme_names();  // for a shell to complete

// For reference pages: every scheme, or those that are named, with paper, equation and options. InputError for a name
// that is none.
[[nodiscard]] std::string describe_schemes(const std::vector<std::string>& names = {});

}  // namespace whence
