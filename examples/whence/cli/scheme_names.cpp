#include "examples/whence/cli/scheme_names.h"

#include "nn/scheme.h"

namespace whence {

std::vector<std::string> scheme_names() {
  std::vector<std::string> names;
  for (const SchemeInfo& info : registered_schemes()) names.push_back(info.name);
  return names;
}

}  // namespace whence
