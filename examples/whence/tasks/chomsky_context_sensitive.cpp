// The context-sensitive tasks, which need a tape as long as the string.
#include <algorithm>

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

// ---- Whole numbers of any length as their binary digits.

// Turns column sums, least significant first, into digits.
Tokens carried(Tokens columns) {
  std::int64_t carry = 0;
  for (std::int64_t& column : columns) {
    column += carry;
    carry = column / 2;
    column %= 2;
  }
  for (; carry > 0; carry /= 2) columns.push_back(carry % 2);
  return without_end_zeros(std::move(columns));
}

// Numbers as long division writes them, most significant digit first; no zeros in front, zero is empty.

void shift_in(Tokens& number, std::int64_t digit) {
  if (!number.empty() || digit != 0) number.push_back(digit);
}

bool at_least(const Tokens& a, const Tokens& b) {
  if (a.size() != b.size()) return a.size() > b.size();
  return a >= b;
}

// Returns a - b for a >= b.
Tokens difference(Tokens a, const Tokens& b) {
  std::int64_t borrow = 0;
  for (std::size_t i = 0; i < a.size() && (i < b.size() || borrow != 0); ++i) {
    std::int64_t& digit = a[a.size() - 1 - i];
    digit -= borrow + (i < b.size() ? b[b.size() - 1 - i] : 0);
    borrow = digit < 0 ? 1 : 0;
    digit += 2 * borrow;
  }
  a.erase(a.begin(), std::find(a.begin(), a.end(), 1));
  return a;
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

Tokens without_end_zeros(Tokens digits) {
  while (digits.size() > 1 && digits.back() == 0) digits.pop_back();
  return digits;
}

Tokens binary_sum(const Tokens& a, const Tokens& b) {
  Tokens columns(std::max(a.size(), b.size()), 0);
  for (std::size_t i = 0; i < a.size(); ++i) columns[i] += a[i];
  for (std::size_t i = 0; i < b.size(); ++i) columns[i] += b[i];
  return carried(std::move(columns));
}

Tokens binary_product(const Tokens& a, const Tokens& b) {
  Tokens columns(a.size() + b.size(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == 0) continue;
    for (std::size_t j = 0; j < b.size(); ++j) columns[i + j] += b[j];
  }
  return carried(std::move(columns));
}

// Two digits ab of n make one of the root. When the digits so far are r^2 + rest, those up to ab are
//   4 (r^2 + rest) + ab = (2r)^2 + (4 rest + ab) = (2r + 1)^2 + (4 rest + ab) - (4r + 1)
// so that the next digit is 1 where 4 rest + ab >= 4r + 1.
Tokens binary_square_root(const Tokens& n) {
  Tokens digits, root, rest;
  for (std::size_t i = 0; i < n.size(); ++i) {
    shift_in(rest, n[i]);
    if ((n.size() - i) % 2 == 0) continue;  // pairs are counted from the last digit
    Tokens odd = root;
    shift_in(odd, 0);
    shift_in(odd, 1);
    const bool one = at_least(rest, odd);
    if (one) rest = difference(std::move(rest), odd);
    shift_in(root, one ? 1 : 0);
    digits.push_back(one ? 1 : 0);
  }
  return digits;
}

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
