// Schoolbook arithmetic on binary digits.
#include "examples/whence/tasks/binary_integers.h"

#include <algorithm>

namespace whence::tasks {
namespace {

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

}  // namespace whence::tasks
