// The answers of the fifteen Chomsky-hierarchy tasks: printed examples, and every label recomputed in another way.
#include "examples/whence/tasks/chomsky.h"

#include <doctest/doctest.h>
#include <algorithm>
#include <cctype>
#include <numeric>

#include "tensor/error.h"

using namespace whence;
using namespace whence::tasks;

namespace {

const ChomskyProblem& problem_of(const std::string& name) {
  return *std::ranges::find(chomsky_problems(), name, &ChomskyProblem::name);
}

Reading reading_of(const ChomskyProblem& problem) { return problem.default_reading.value_or(Reading::source); }

// Calls check(string, answer, reading) for many strings of a problem, in both readings if there are two: lengths
// 1 ... 44, some near powers of two, and the longest one tested.
template <class Check> void for_many(const std::string& name, Reading reading, const Check& check) {
  const ChomskyProblem& problem = problem_of(name);
  std::vector<index_t> lengths(44);
  std::iota(lengths.begin(), lengths.end(), 1);
  for (const index_t length : {63, 64, 65, 127, 128, 129, 255, 256, 257, 499, 500}) lengths.push_back(length);
  for (const index_t length : lengths) {
    INFO(name, ", length ", length);
    for (std::uint64_t number = 0; number < 25; ++number) {
      Draw draw(Stream(5, name, number));
      const Tokens string = problem.draw(draw, length, reading);
      REQUIRE(
          static_cast<index_t>(string.size()) == (name == "modular_arithmetic" ? length - (length + 1) % 2 : length));
      const Tokens given = problem.answer(string, reading);
      for (const std::int64_t token : given) REQUIRE((token >= 0 && token < problem.outputs));
      check(string, given, reading);
    }
  }
}
template <class Check> void for_many(const std::string& name, const Check& check) {
  for_many(name, Reading::source, check);
  if (problem_of(name).default_reading) for_many(name, Reading::paper, check);
}

std::string characters(const std::string& problem, const Tokens& string) {
  std::string text;
  for (const std::int64_t symbol : string) text += problem_of(problem).symbols.at(static_cast<std::size_t>(symbol));
  return text;
}

// ---- Arithmetic mod 5 by rewriting text.

int in_range(int value) { return (value % 5 + 5) % 5; }

// Splits text without brackets at the last + or -, else at the last *. Other signs belong to their digits.
int flat_value(const std::string& text) {
  const auto is_binary = [&](std::size_t i) { return i > 0 && std::isdigit(text[i - 1]); };
  for (std::size_t i = text.size(); i-- > 1;) {
    if (!is_binary(i) || (text[i] != '+' && text[i] != '-')) continue;
    const int left = flat_value(text.substr(0, i)), right = flat_value(text.substr(i + 1));
    return in_range(text[i] == '+' ? left + right : left - right);
  }
  if (const std::size_t i = text.rfind('*'); i != std::string::npos)
    return in_range(flat_value(text.substr(0, i)) * flat_value(text.substr(i + 1)));
  return in_range(std::stoi(text));
}

// Replaces the innermost pair of brackets by its value until none is left.
int bracket_value(std::string text) {
  for (std::size_t close = text.find(')'); close != std::string::npos; close = text.find(')')) {
    const std::size_t open = text.rfind('(', close);
    text.replace(open, close - open + 1, std::to_string(flat_value(text.substr(open + 1, close - open - 1))));
  }
  return flat_value(text);
}

Tokens recomputed(const std::string& problem, const Tokens& string, Reading reading) {
  const auto count = [&](std::int64_t symbol) { return static_cast<int>(std::ranges::count(string, symbol)); };
  if (problem == "even_pairs") return {string.front() != string.back()};
  if (problem == "parity_check") return {count(1) % 2};
  if (problem == "cycle_navigation")
    return {in_range(reading == Reading::paper ? count(1) - count(2) : count(2) - count(0))};
  if (problem == "modular_arithmetic") return {flat_value(characters(problem, string))};
  if (problem == "modular_arithmetic_brackets") return {bracket_value(characters(problem, string))};
  if (problem == "reverse_string") return {string.rbegin(), string.rend()};
  Tokens answer;
  if (problem == "stack_manipulation") {  // from the end: a pop takes the next symbol that is pushed before it
    int pops = 0;
    for (auto symbol = string.rbegin(); symbol != string.rend(); ++symbol)
      if (*symbol == 2)
        ++pops;
      else if (pops > 0)
        --pops;
      else
        answer.push_back(*symbol % 3);
    answer.push_back(end_of_answer);
    answer.resize(string.size() + 1);
  } else if (problem == "bucket_sort") {
    for (std::int64_t symbol = 0; symbol < 5; ++symbol)
      answer.insert(answer.end(), static_cast<std::size_t>(count(symbol)), symbol);
  } else if (problem == "duplicate_string") {
    for (std::size_t i = 0; i < 2 * string.size(); ++i) answer.push_back(string[i % string.size()]);
  } else {  // odds_first: where each symbol goes
    const bool paper = reading == Reading::paper;
    const std::size_t size = string.size(), half = paper ? (size + 1) / 2 : size / 2;
    answer.resize(size);
    for (std::size_t i = 0; i < size; ++i) answer[i / 2 + ((i % 2 == 1) == paper ? half : 0)] = string[i];
  }
  return answer;
}

}  // namespace

TEST_CASE("chomsky: strings and answers that the data's source makes, and those that the DAPE papers print") {
  using enum Reading;
  struct Example {
    const char *problem, *string, *answer;
    std::optional<Reading> reading = {};
  };
  const auto tokens = [](const std::string& digits) {
    Tokens found;
    for (const char digit : digits) found.push_back(digit - '0');
    return found;
  };
  for (const Example& each : std::initializer_list<Example>{{"even_pairs", "001110", "0"},
           {"parity_check", "1010100", "1"}, {"cycle_navigation", "20100", "3", source},
           {"stack_manipulation", "0110422", "11020000"}, {"reverse_string", "011010", "010110"},
           {"duplicate_string", "101", "101101"}, {"odds_first", "00110101", "01000111", paper},
           {"odds_first", "00110101", "01110100", source}, {"missing_duplicate", "01100210", "1"},
           {"binary_addition", "001201101", "0101120000"}, {"binary_multiplication", "001201101", "000110120"},
           {"compute_sqrt", "100101", "110"}, {"bucket_sort", "10204112", "00111224"},
           // Printed examples, where 0 is True.
           {"even_pairs", "00110", "0"}, {"parity_check", "000110", "0"}, {"modular_arithmetic", "15264", "4", paper},
           {"cycle_navigation", "011210", "2"}, {"stack_manipulation", "01100232", "011020000"},
           {"missing_duplicate", "10011021", "0"}, {"binary_addition", "100102101", "1011120000", paper},
           {"bucket_sort", "421302214", "011222344"}, {"compute_sqrt", "100010", "101"}}) {
    INFO(each.problem, ", string ", each.string);
    const Reading reading = each.reading.value_or(reading_of(problem_of(each.problem)));
    CHECK(problem_of(each.problem).answer(tokens(each.string), reading) == tokens(each.answer));
  }
}

TEST_CASE("chomsky: answers recomputed") {
  for (const char* problem :
      {"even_pairs", "parity_check", "cycle_navigation", "modular_arithmetic", "modular_arithmetic_brackets",
          "stack_manipulation", "reverse_string", "duplicate_string", "odds_first", "bucket_sort"})
    for_many(problem, [&](const Tokens& string, const Tokens& given, Reading reading) {
      CHECK(given == recomputed(problem, string, reading));
    });
}

TEST_CASE("chomsky: answers that solve what is asked, and no other does") {
  for_many("solve_equation", [](const Tokens& string, const Tokens& given, Reading) {
    REQUIRE(given.size() == 1);
    if (string.size() < 3) {
      CHECK(given == Tokens{0});
      CHECK(string == Tokens(string.size(), 0));
      return;
    }
    const std::string text = characters("solve_equation", string);
    CHECK(text.find('*') == std::string::npos);
    REQUIRE(std::count(text.begin(), text.end(), 'x') == 1);
    REQUIRE(text[text.size() - 2] == '=');
    for (int x = 0; x < 5; ++x) {  // exactly one digit solves it
      std::string left = text.substr(0, text.size() - 2);
      left.replace(left.find('x'), 1, std::to_string(x));
      CHECK((bracket_value(left) == text.back() - '0') == (x == given[0]));
    }
  });
  for_many("missing_duplicate", [](const Tokens& string, const Tokens& given, Reading) {
    REQUIRE(given.size() == 1);
    if (string.size() == 1) {
      CHECK(string == Tokens{1});
      CHECK(given == Tokens{1});
      return;
    }
    Tokens filled = string;
    if (string.size() % 2 == 1) {
      CHECK(filled.back() == 3);
      filled.pop_back();
    }
    REQUIRE(std::ranges::count(filled, 2) == 1);
    std::ranges::replace(filled, 2, given[0]);
    const auto half = filled.begin() + std::ssize(filled) / 2;
    CHECK(std::equal(filled.begin(), half, half));
  });
}

TEST_CASE("chomsky: the binary operations on all small numbers") {
  const auto digits = [](int number, int count) {
    Tokens result;
    for (int i = 0; i < count; ++i) result.push_back(number >> i & 1);
    return result;
  };
  for (int a = 0; a < 40; ++a) {
    for (int b = 0; b < 40; ++b) {
      CHECK(binary_sum(digits(a, 6), digits(b, 8)) == without_end_zeros(digits(a + b, 12)));
      CHECK(binary_product(digits(a, 7), digits(b, 6)) == without_end_zeros(digits(a * b, 12)));
    }
  }
  for (int n = 0; n < 1 << 12; ++n) {
    Tokens number = digits(n, 12);
    std::reverse(number.begin(), number.end());
    int root = 0;
    for (const std::int64_t digit : binary_square_root(number)) root = 2 * root + static_cast<int>(digit);
    CHECK((root * root <= n && n < (root + 1) * (root + 1)));
  }
  CHECK_THROWS_WITH_AS((void)terminated({1, 1}, 2), doctest::Contains("answer: 2 symbols"), Error);
}
