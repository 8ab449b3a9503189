#include "tensor/error.h"

#include <algorithm>
#include <cctype>
#include <iomanip>
#include <span>

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

static std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(
      result.begin(), result.end(), result.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

// Edit distance with swaps (optimal string alignment).
std::size_t edit_distance(std::string_view from, std::string_view to) {
  // d_ij = min(d_{i-1,j} + 1, d_{i,j-1} + 1, d_{i-1,j-1} + [from_i != to_j], d_{i-2,j-2} + 1 if the last two are
  // swapped)
  std::vector<std::vector<std::size_t>> d(from.size() + 1, std::vector<std::size_t>(to.size() + 1));
  for (std::size_t i = 0; i <= from.size(); ++i) {
    for (std::size_t j = 0; j <= to.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (from[i - 1] == to[j - 1] ? 0u : 1u)});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[from.size()][to.size()];
}

std::optional<std::string> nearest_name(std::string_view typed, const std::vector<std::string>& candidates) {
  constexpr std::size_t longest_compared = 64;  // the table above is quadratic, and no name is that long
  if (typed.empty() || typed.size() > longest_compared) return std::nullopt;
  const std::string name = lower(typed);
  std::optional<std::string> best;
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 3) + 1;  // a larger distance is no misprint
  for (const std::string& original : candidates) {
    const std::string candidate = lower(original);
    // A common beginning is a stronger hint than a small distance.
    const bool begins = name.size() >= 3 && candidate.starts_with(name);
    const std::size_t distance = begins ? 0 : edit_distance(name, candidate);
    if (distance < best_distance && distance < std::max(name.size(), candidate.size())) {
      best_distance = distance;
      best = original;
    }
  }
  return best;
}

std::string first_few(const std::vector<std::string>& texts, const char* separator) {
  const std::size_t shown = std::min<std::size_t>(texts.size(), 5);
  const std::string list = joined(std::span(texts).first(shown), {}, separator);
  return texts.size() == shown ? list : to_text(list, separator, "and ", texts.size() - shown, " more");
}

void refuse_name(const char* what, const std::string& given, const std::vector<std::string>& known) {
  const auto nearest = nearest_name(given, known);
  throw InputError(what, ": '", given, "' given; one of ", joined(known), " required",
      nearest ? "; did you mean '" + *nearest + "'?" : "");
}

bool matches(const std::string& pattern, const std::string& name) {
  std::size_t p = 0, n = 0, star = std::string::npos, retry = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != std::string::npos) {
      p = star + 1;
      n = ++retry;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string::npos;
}

}  // namespace whence
