// The regular tasks: a finite automaton can answer them while it reads.
#include "examples/whence/tasks/chomsky.h"

namespace whence::tasks {
namespace {

// After the digits 0 ... 4; padding is never drawn.
enum Arithmetic : std::int64_t { add_sign = modulus, subtract_sign, multiply_sign, padding };

//   a a b b a -> 0
// Unequal neighbours, mod 2: 0 exactly where the first symbol is the last. The papers print class 0 as True.
Tokens unequal_pairs(const Tokens& string, Reading) {
  std::int64_t unequal = 0;
  for (std::size_t i = 1; i < string.size(); ++i) unequal += string[i] != string[i - 1] ? 1 : 0;
  return {unequal % 2};
}

//   a a a b b a -> 0
Tokens parity(const Tokens& string, Reading) {
  std::int64_t ones = 0;
  for (const std::int64_t bit : string) ones += bit;
  return {ones % 2};
}

//   0 1 1 2 1 0 -> 2 (paper), 4 (source)
// The end of a walk on a circle of five places. paper: 0 stays, 1 goes on, 2 back; source: symbol minus 1.
Tokens place_on_cycle(const Tokens& string, Reading reading) {
  std::int64_t place = 0;
  for (const std::int64_t symbol : string) {
    const std::int64_t move = reading == Reading::source ? symbol - 1 : symbol == 2 ? -1 : symbol;
    place = (place + move + modulus) % modulus;
  }
  return {place};
}

// Draws digits with operators between them; an even length becomes the odd one below. * is the source's, not the papers'.
Tokens draw_sum(Draw& draw, index_t length, Reading reading) {
  const index_t odd_length = length % 2 == 0 ? length - 1 : length;
  Tokens string;
  for (index_t i = 0; i < odd_length; ++i)
    string.push_back(i % 2 == 0 ? draw.below(modulus) : add_sign + draw.below(reading == Reading::source ? 3 : 2));
  return string;
}

//   0 * 1 + 4 * 3 - 2 -> 0
// * binds tighter: sum of products, where `term` is the product being read, with its sign.
Tokens value_of_sum(const Tokens& string, Reading) {
  std::int64_t sum = 0, term = string[0];
  for (std::size_t i = 1; i + 1 < string.size(); i += 2) {
    const std::int64_t digit = string[i + 1];
    if (string[i] == multiply_sign) {
      term = term * digit % modulus;
      continue;
    }
    sum += term;
    term = string[i] == add_sign ? digit : -digit;
  }
  return {((sum + term) % modulus + modulus) % modulus};
}

}  // namespace

std::vector<ChomskyProblem> regular_problems() {
  return {
      {"even_pairs", "is the number of unequal neighbours even?", symbols_of("01"), 2, draw_symbols<2>, unequal_pairs},
      {"modular_arithmetic", "value mod 5 of digits with + - * between them", symbols_of("01234+-*_"), modulus,
          draw_sum, value_of_sum, false, Reading::source},
      {"parity_check", "is the number of ones even?", symbols_of("01"), 2, draw_symbols<2>, parity},
      {"cycle_navigation", "where a walk on a circle of five places ends", symbols_of("012"), modulus, draw_symbols<3>,
          place_on_cycle, false, Reading::paper}};
}

}  // namespace whence::tasks
