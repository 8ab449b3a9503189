// The deterministic context-free tasks, which need a stack.
#include <algorithm>

#include "examples/whence/tasks/chomsky.h"
#include "tensor/error.h"

namespace whence::tasks {
namespace {

// ---- Stack manipulation: a stack, bottom first, and what is done to it.

enum Action : std::int64_t { pop = 2, push_zero, push_one };  // after the bits

Tokens draw_actions(Draw& draw, index_t length, Reading) {
  if (length == 1) return draw.symbols(1, 2);
  const std::int64_t stack = draw.between(1, length - 1);
  Tokens string = draw.symbols(stack, 2);
  while (static_cast<index_t>(string.size()) < length) string.push_back(draw.between(pop, push_one));
  return string;
}

//   0 1 1 0 push 1, pop, pop -> 1 1 0 end 0 0 0 0
// The stack in the end, top first. A pop from an empty stack does nothing.
Tokens final_stack(const Tokens& string, Reading) {
  Tokens stack;
  for (const std::int64_t symbol : string)
    if (symbol != pop)
      stack.push_back(symbol < pop ? symbol : symbol - push_zero);
    else if (!stack.empty())
      stack.pop_back();
  std::reverse(stack.begin(), stack.end());
  return terminated(std::move(stack), string.size() + 1);
}

// ---- Reverse string: 0 0 1 1 0 -> 0 1 1 0 0.

Tokens reversed(const Tokens& string, Reading) { return {string.rbegin(), string.rend()}; }

// ---- Arithmetic mod 5 with brackets.
//   expression = d | -d | (d) | (-d) | (expression operator expression)

enum Bracketed : std::int64_t { plus = modulus, minus, times, open, close };  // after the digits 0 ... 4

// Draws an expression of exactly `length` symbols. Lengths of parts are uniform; with_products: * in addition to + and -.
void draw_expression(Draw& draw, index_t length, bool with_products, Tokens& string) {
  const bool in_brackets = length >= 3;
  if (in_brackets) string.push_back(open);
  if (length >= 5) {
    const std::int64_t left = draw.between(1, length - 4);
    draw_expression(draw, left, with_products, string);
    string.push_back(plus + draw.below(with_products ? 3 : 2));
    draw_expression(draw, length - 3 - left, with_products, string);
  } else {
    if (length % 2 == 0) string.push_back(minus);
    string.push_back(draw.below(modulus));
  }
  if (in_brackets) string.push_back(close);
}

//   ( ( - 3 ) * ( 2 + 4 ) ) -> 2
// Evaluates the expression at `at`, and moves `at` after it.
std::int64_t read_expression(const Tokens& string, std::size_t& at) {
  const std::int64_t first = string.at(at++);
  if (first < modulus) return first;
  if (first == minus) return (modulus - string.at(at++)) % modulus;
  const std::int64_t left = read_expression(string, at);
  const std::int64_t operation = string.at(at++);
  if (operation == close) return left;
  const std::int64_t right = read_expression(string, at);
  ++at;  // the bracket closes
  if (operation == times) return left * right % modulus;
  return (left + (operation == plus ? right : modulus - right)) % modulus;
}

std::int64_t value(const Tokens& string) {
  std::size_t at = 0;
  return read_expression(string, at);
}

Tokens draw_bracketed(Draw& draw, index_t length, Reading) {
  Tokens string;
  draw_expression(draw, length, true, string);
  return string;
}

Tokens value_of_brackets(const Tokens& string, Reading) { return {value(string)}; }

// ---- Solve equation, (x-2)=1 -> 3: EXPRESSION=value with one digit replaced by x. No * (the papers' example has it):
// each is then x or -x plus something, and exactly one digit solves it. Symbols: those above without *, then x and =.

enum Equation : std::int64_t { equation_open = 7, equation_close, unknown, equals };

std::int64_t without_times(std::int64_t symbol) { return symbol > times ? symbol - 1 : symbol; }
std::int64_t with_times(std::int64_t symbol) { return symbol >= times ? symbol + 1 : symbol; }

Tokens draw_equation(Draw& draw, index_t length, Reading) {
  if (length < 3) return Tokens(static_cast<std::size_t>(length), 0);
  Tokens string;
  draw_expression(draw, length - 2, false, string);
  const std::int64_t right_side = value(string);
  // Takes the first digit from a uniformly drawn place on, cyclically, as in the source; one after brackets is likelier.
  auto hidden = static_cast<std::size_t>(draw.below(length - 2));
  while (string[hidden] >= modulus) hidden = (hidden + 1) % string.size();
  std::transform(string.begin(), string.end(), string.begin(), without_times);
  string[hidden] = unknown;
  string.push_back(equals);
  string.push_back(right_side);
  return string;
}

// Strings too short for an equation are zeros, with class 0.
Tokens solution(const Tokens& string, Reading) {
  const auto hidden = std::find(string.begin(), string.end(), unknown);
  if (hidden == string.end()) return {0};
  Tokens left_side(string.size() - 2);
  std::transform(string.begin(), string.end() - 2, left_side.begin(), with_times);
  std::int64_t& x = left_side[static_cast<std::size_t>(hidden - string.begin())];
  for (x = 0; x < modulus; ++x)
    if (value(left_side) == string.back()) return {x};
  throw Error("solve_equation: an equation without a solution given; + and - only required");
}

}  // namespace

std::vector<ChomskyProblem> context_free_problems() {
  // The last bracket symbol is never drawn; the source counts it, so a model has its row.
  return {{"stack_manipulation", "what a stack holds after pushes and pops",
              {"0", "1", "(pop)", "(push 0)", "(push 1)"}, 3, draw_actions, final_stack, true},
      {"reverse_string", "a string of bits, last first", symbols_of("01"), 2, draw_symbols<2>, reversed},
      {"modular_arithmetic_brackets", "value mod 5 of an expression with brackets; a constant guess is right in 31 %",
          symbols_of("01234+-*()_"), modulus, draw_bracketed, value_of_brackets},
      {"solve_equation", "x in an expression with brackets whose value mod 5 is given", symbols_of("01234+-()x="),
          modulus, draw_equation, solution}};
}

}  // namespace whence::tasks
