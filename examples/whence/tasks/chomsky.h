// The Chomsky-hierarchy tasks (Deletang et al. 2023, arXiv:2207.02098): fifteen problems on strings, ordered by the
// machine they need. A bidirectional model reads the string and one placeholder per symbol of the answer, runs once,
// and answers at the placeholders:
//   reverse_string   0 1 1 0 1 0 . . . . . .   ->   - - - - - - 0 1 0 1 1 0
// Training strings have 1 ... 40 symbols, tests 41 ... 500 (Ruoss et al. 2023, arXiv:2305.16843; Zheng et al. 2024,
// arXiv:2405.14722).
#pragma once

#include <optional>

#include "examples/whence/tasks/task.h"

namespace whence::tasks {

// Selects a definition where the examples in the DAPE papers and the source of the data differ.
enum class Reading : unsigned char { paper, source };

// One of the fifteen. The answer is a function of the string alone.
struct ChomskyProblem {
  std::string name, title;
  std::vector<std::string> symbols;  // in strings; the placeholder is the number after the last
  index_t outputs = 2;               // kinds of symbols in answers
  Tokens (*draw)(Draw& draw, index_t length, Reading reading) = nullptr;
  Tokens (*answer)(const Tokens& string, Reading reading) = nullptr;
  bool terminated = false;  // answers end with end_of_answer, then zeros that are trained on but not graded
  std::optional<Reading> default_reading = {};  // nothing: there is one definition
};

template <std::int64_t kinds> Tokens draw_symbols(Draw& draw, index_t length, Reading) {
  return draw.symbols(length, kinds);
}

inline constexpr std::int64_t end_of_answer = 2;
inline constexpr std::int64_t modulus = 5;  // for all arithmetic here

// Returns `answer`, the end, and zeros up to `length` symbols.
Tokens terminated(Tokens answer, std::size_t length);
std::vector<std::string> symbols_of(std::string_view characters);

// Whole numbers of any length as binary digits, least significant first, no zeros at the end except in {0}.
Tokens without_end_zeros(Tokens digits);
Tokens binary_sum(const Tokens& a, const Tokens& b);
Tokens binary_product(const Tokens& a, const Tokens& b);
// Most significant digit first: the largest r with r^2 <= n, in half as many digits as n (rounded up).
Tokens binary_square_root(const Tokens& n);

// Solvable by a finite automaton; with a stack; with a tape as long as the string.
std::vector<ChomskyProblem> regular_problems();
std::vector<ChomskyProblem> context_free_problems();
std::vector<ChomskyProblem> context_sensitive_problems();

const std::vector<ChomskyProblem>& chomsky_problems();  // all fifteen

}  // namespace whence::tasks
