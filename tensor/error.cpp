// The text of errors.
#include "tensor/error.h"

namespace whence {

std::string to_string(const Site& site) {
  const std::string_view path = site.file_name();
  const auto slash = path.find_last_of('/');
  return concat(slash == std::string_view::npos ? path : path.substr(slash + 1), ':', site.line());
}

void fail(std::string_view op, const std::string& message) {
  const Site* site = CallSite::current();
  throw Error(site ? concat(to_string(*site), ": ", op, ": ", message) : concat(op, ": ", message));
}

}  // namespace whence
