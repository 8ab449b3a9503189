#include "tensor/error.h"

#include <iomanip>

namespace whence {

std::string to_string(const Site& site) {
  const std::string_view path = site.file_name();
  const auto slash = path.find_last_of('/');
  return to_text(slash == std::string_view::npos ? path : path.substr(slash + 1), ':', site.line());
}

std::string bytes_text(std::size_t bytes) {
  constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return to_text(bytes, " bytes");
  double size = static_cast<double>(bytes) / 1024;
  int unit = 0;
  for (; size >= 1024 && unit < 3; ++unit) size /= 1024;
  std::ostringstream text;
  text << std::setprecision(size >= 1000 ? 4 : 3) << size << ' ' << units[unit];
  return text.str();
}

std::string error_at_call_site(std::string_view op, const std::string& message) {
  const Site* site = CallSite::current();
  return site ? to_text(to_string(*site), ": ", op, ": ", message) : to_text(op, ": ", message);
}

void fail(std::string_view op, const std::string& message) { throw Error(error_at_call_site(op, message)); }

}  // namespace whence
