#include "examples/whence/cli/numbers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <system_error>
#include <type_traits>

#include "nn/scheme.h"

namespace whence {
namespace {

template <class... Arguments> std::string printed(const char* format, Arguments... arguments) {
  std::array<char, 400> text{};  // the largest double has 309 digits before the point
  const int length = std::snprintf(text.data(), text.size(), format, arguments...);
  return {text.data(), static_cast<std::size_t>(length)};
}

}  // namespace

std::string exact(double value) {
  if (std::isnan(value)) return "-";
  std::array<char, 64> text{};
  // The standard library writes 0.0003 as 3e-04, because that is shorter.
  const double size = std::abs(value);
  const auto format =
      size == 0 || (size >= 1e-5 && size < 1e15) ? std::chars_format::fixed : std::chars_format::general;
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value, format);
  return {text.data(), written.ptr};
}

std::string fixed(double value, int count) {
  return std::isnan(value) ? "-" : printed("%.*f", std::clamp(count, 0, 30), value);
}

std::string digits(double value, int count) { return std::isnan(value) ? "-" : printed("%.*g", count, value); }

std::string with_unit(double value) {
  if (!(value >= 0) || std::isinf(value)) return "-";
  std::string unit;
  // 999.5 would be printed with four digits, so it already gets the next unit.
  for (const char* next : {"k", "M", "G", "T"}) {
    if (value < 999.5) break;
    value /= 1000;
    unit = next;
  }
  return fixed(value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0) + unit;
}

std::string time_text(double seconds) {
  constexpr double longest = 1000.0 * 86400;  // farther away than any plan
  if (!(seconds >= 0 && seconds < longest)) return "-";
  const long whole = std::lround(seconds);
  const long days = whole / 86400, hours = whole / 3600 % 24, minutes = whole / 60 % 60, rest = whole % 60;
  if (days > 0) return printed("%ldd %02ld:%02ld:%02ld", days, hours, minutes, rest);
  if (hours > 0) return printed("%ld:%02ld:%02ld", hours, minutes, rest);
  return printed("%ld:%02ld", minutes, rest);
}

template <class Number> std::optional<Number> parse_number(std::string_view text) {
  if constexpr (std::is_floating_point_v<Number>) {
    const double value = number_in(std::string(text));
    return std::isfinite(value) ? std::optional(value) : std::nullopt;
  } else {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
  }
}

template std::optional<int> parse_number<int>(std::string_view);
template std::optional<std::int64_t> parse_number<std::int64_t>(std::string_view);
template std::optional<std::uint64_t> parse_number<std::uint64_t>(std::string_view);
template std::optional<double> parse_number<double>(std::string_view);

}  // namespace whence
