// The context-sensitive tasks, which need a tape as long as the string.
#include <algorithm>

#include "examples/whence/tasks/binary_integers.h"
#include "examples/whence/tasks/chomsky.h"

namespace whence::tasks {
namespace {

Tokens twice(const Tokens& string, Reading) {
  Tokens answer = string;
  answer.insert(answer.end(), string.begin(), string.end());
  return answer;
}

//   0 0 0 1 0 0 -> 0 0 0 0 1 0
// paper: symbols 1, 3, 5, ... before 2, 4, ..., counted from one; the source's slices begin with 2, 4, ...
Tokens odds_first(const Tokens& string, Reading reading) {
  const std::size_t first = reading == Reading::paper ? 0 : 1;
  Tokens answer;
  for (std::size_t i = first; i < string.size(); i += 2) answer.push_back(string[i]);
  for (std::size_t i = 1 - first; i < string.size(); i += 2) answer.push_back(string[i]);
  return answer;
}

Tokens sorted(const Tokens& string, Reading) {
  Tokens answer = string;
  std::sort(answer.begin(), answer.end());
  return answer;
}

// ---- Missing duplicate: a string twice, one symbol of the 2n hidden; a symbol after it where the length is odd.

constexpr std::int64_t hole = 2, filler = 3;

Tokens draw_with_hole(Draw& draw, index_t length, Reading) {
  if (length == 1) return {1};
  Tokens string = twice(draw.symbols(length / 2, 2), {});
  string[static_cast<std::size_t>(draw.below(length / 2 * 2))] = hole;
  if (length % 2 == 1) string.push_back(filler);
  return string;
}

//   0 1 1 0 0 ? 1 0 -> 1
Tokens missing_symbol(const Tokens& string, Reading) {
  if (string.size() == 1) return {1};
  const std::size_t half = string.size() / 2;
  const auto place = static_cast<std::size_t>(std::find(string.begin(), string.end(), hole) - string.begin());
  return {string[(place + half) % (2 * half)]};
}

// ---- Binary arithmetic. Inputs are n 2 m, each number in digits of its own, the least significant first (source).

constexpr std::int64_t separator = 2;

// Draws a number uniform on 1 ... 2^count - 1; its distribution is the same in either order of digits.
Tokens positive_number(Draw& draw, index_t count) {
  Tokens digits;
  do { digits = draw.symbols(count, 2); } while (std::find(digits.begin(), digits.end(), 1) == digits.end());
  return digits;
}

Tokens draw_root(Draw& draw, index_t length, Reading) { return positive_number(draw, length); }

// Too short for two numbers: draws one, uniform on 0 ... 2^length - 2.
Tokens draw_pair(Draw& draw, index_t length, Reading reading) {
  if (length == 1) return {0};
  if (length == 2) {
    const std::int64_t number = draw.below(3), low = number % 2, high = number / 2;
    return reading == Reading::source ? Tokens{low, high} : Tokens{high, low};
  }
  const std::int64_t first = draw.between(1, length - 2);
  Tokens string = positive_number(draw, first);
  string.push_back(separator);
  const Tokens second = positive_number(draw, length - 1 - first);
  string.insert(string.end(), second.begin(), second.end());
  return string;
}

//   0 0 1 + 0 1 1 0 1 -> 0 1 0 1 1 end 0 0 0 0     (4 + 22 = 26)
// The sum. paper: the most significant digit first, in numbers and answer.
Tokens sum(const Tokens& string, Reading reading) {
  // Reversed, "n 2 m" with high digits first is "m 2 n" with low digits first, and n + m = m + n.
  Tokens forward = string;
  if (reading == Reading::paper) std::reverse(forward.begin(), forward.end());
  const auto between = std::find(forward.begin(), forward.end(), separator);
  Tokens answer = between == forward.end() ? without_end_zeros(forward)
                                           : binary_sum({forward.begin(), between}, {between + 1, forward.end()});
  if (reading == Reading::paper) std::reverse(answer.begin(), answer.end());
  return terminated(std::move(answer), string.size() + 1);
}

//   0 0 1 * 0 1 1 0 1 -> 0 0 0 1 1 0 1 end 0       (4 * 22 = 88)
// The product. A single number gives zeros, as many as fit.
Tokens product(const Tokens& string, Reading) {
  const auto between = std::find(string.begin(), string.end(), separator);
  if (between == string.end()) return terminated(Tokens(string.size() - 1, 0), string.size());
  return terminated(binary_product({string.begin(), between}, {between + 1, string.end()}), string.size());
}

//   1 0 0 1 0 1 -> 1 1 0                           (37 -> 6)
// The most significant digit first. The papers print 110 for 100010, 34's root to nearest: 1111 lacks digits for that.
Tokens root(const Tokens& string, Reading) { return binary_square_root(string); }

}  // namespace

std::vector<ChomskyProblem> context_sensitive_problems() {
  return {{"duplicate_string", "a string of bits, twice", symbols_of("01"), 2, draw_symbols<2>, twice},
      {"missing_duplicate", "the bit missing in a string that is given twice", symbols_of("01?_"), 2, draw_with_hole,
          missing_symbol},
      {"odds_first", "symbols 1, 3, 5, ... of a string, then 2, 4, ...", symbols_of("01"), 2, draw_symbols<2>,
          odds_first, false, Reading::paper},
      {"bucket_sort", "digits 0 ... 4 in order", symbols_of("01234"), 5, draw_symbols<5>, sorted},
      {"binary_addition", "sum of two binary numbers", symbols_of("01+"), 3, draw_pair, sum, true, Reading::source},
      {"binary_multiplication", "product of two binary numbers", symbols_of("01*"), 3, draw_pair, product, true},
      {"compute_sqrt", "square root of a binary number, rounded down", symbols_of("01"), 2, draw_root, root}};
}

}  // namespace whence::tasks
