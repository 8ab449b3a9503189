#include "examples/whence/cli/numbers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <type_traits>

#include "examples/whence/cli/text.h"
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

// ---- Lists and words

namespace {

constexpr const char* blanks = " \t\n\v\f\r";

// Returns the size of the first part of `text`: up to one of `separators` outside of parentheses.
std::size_t first_part(std::string_view text, std::string_view separators) {
  int depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    depth += (text[at] == '(') - (text[at] == ')');
    if (depth <= 0 && separators.find(text[at]) != separators.npos) return at;
  }
  return text.size();
}

// Takes `size` bytes and the separator behind them from the front of `rest`.
std::string take(std::string_view& rest, std::size_t size) {
  const std::string part(rest.substr(0, size));
  rest.remove_prefix(std::min(size + 1, rest.size()));
  return part;
}

}  // namespace

std::vector<std::string> scheme_names() {
  std::vector<std::string> names;
  for (const SchemeInfo& info : registered_schemes()) names.push_back(info.name);
  return names;
}

std::vector<std::string> list_of(const std::string& text) {
  std::vector<std::string> parts;
  for (std::string_view rest = text; !rest.empty();) parts.push_back(take(rest, first_part(rest, ",")));
  return parts;
}

std::vector<std::string> path_list_of(const std::string& text) {
  std::vector<std::string> paths;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t shortest = std::min(rest.find(','), rest.size());
    std::size_t size = rest.size();
    for (std::error_code none; size > shortest && !std::filesystem::exists(rest.substr(0, size), none);)
      size = rest.rfind(',', size - 1);
    paths.push_back(take(rest, size));
  }
  return paths;
}

std::vector<std::int64_t> numbers_of(
    const std::string& text, const std::string& option, std::int64_t low, std::int64_t high) {
  std::vector<std::int64_t> numbers;
  std::vector<std::string> parts = list_of(text);
  if (parts.empty() || text.ends_with(',')) parts.emplace_back();  // an empty part, which is no number
  for (const std::string& part : parts) {
    const auto number = parse_number<std::int64_t>(part);
    if (!number || *number < low || *number > high)
      throw InputError(option, ": ", in_quotes(text), " given; whole numbers from ", low, " to ", high,
          " required, commas between them");
    numbers.push_back(*number);
  }
  return numbers;
}

std::int64_t Word::whole(const std::string& option, std::int64_t low, std::int64_t high) const {
  const auto number = parse_number<std::int64_t>(value);
  const std::string typed = in_quotes(name.empty() ? value : name + '=' + value);
  if (!number) throw InputError(option, ": ", typed, " given; a whole number required, as in head=3");
  if (*number < low || *number > high)
    throw InputError(option, ": ", typed, " given; ", low, " to ", high, " required");
  return *number;
}

std::vector<Word> words_of(const std::string& text) {
  std::vector<Word> words;
  for (std::string_view rest = text;;) {
    rest.remove_prefix(std::min(rest.find_first_not_of(blanks), rest.size()));
    if (rest.empty()) return words;
    const std::size_t equals = rest.find_first_of(std::string("=(") + blanks);
    Word& word = words.emplace_back();
    if (equals != rest.npos && rest[equals] == '=') word.name = take(rest, equals);
    word.value = take(rest, first_part(rest, blanks));
  }
}

}  // namespace whence
