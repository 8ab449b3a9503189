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

__extension__ using Wide = unsigned __int128;

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
    CAPTURE(name);
    CAPTURE(length);
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

// Returns the part before the end of a terminated answer. After the end there must be zeros.
Tokens before_end(const Tokens& given) {
  const auto end = std::find(given.begin(), given.end(), end_of_answer);
  REQUIRE(end != given.end());
  CHECK(std::all_of(end + 1, given.end(), [](std::int64_t token) { return token == 0; }));
  return {given.begin(), end};
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

// ---- Binary numbers, most significant digit first, modulo primes.

std::uint64_t remainder_of(const Tokens& digits, std::uint64_t prime) {
  std::uint64_t value = 0;
  for (const std::int64_t digit : digits) value = (2 * value + static_cast<std::uint64_t>(digit)) % prime;
  return value;
}

// Three primes near 2^61: numbers below 2^183 that agree modulo all of them are equal, and longer ones agree by chance
// about once in 2^183.
constexpr std::uint64_t primes[] = {2305843009213693951ull, 2305843009213693921ull, 2305843009213693907ull};

struct Pair {
  Tokens first, second;
};

// Returns the numbers of "n 2 m", most significant digit first.
Pair numbers_of(Tokens string, Reading reading) {
  if (reading == Reading::source) std::reverse(string.begin(), string.end());
  const auto between = std::find(string.begin(), string.end(), 2);
  REQUIRE(between != string.end());
  return {{string.begin(), between}, {between + 1, string.end()}};
}

void check_sum(const Tokens& string, const Tokens& given, Reading reading) {
  REQUIRE(given.size() == string.size() + 1);
  Tokens sum = before_end(given);
  if (reading == Reading::source) std::reverse(sum.begin(), sum.end());
  if (string.size() <= 2) {
    Tokens number = string;
    if (reading == Reading::source) std::reverse(number.begin(), number.end());
    CHECK(remainder_of(sum, primes[0]) == remainder_of(number, primes[0]));
    CHECK((sum.size() == 1 || sum.front() == 1));
    return;
  }
  CHECK(sum.front() == 1);
  const auto [first, second] = numbers_of(string, reading);
  for (const std::uint64_t prime : primes)
    CHECK(remainder_of(sum, prime) == (remainder_of(first, prime) + remainder_of(second, prime)) % prime);
}

bool less_or_equal(Tokens a, Tokens b) {  // least significant digit first
  a = without_end_zeros(std::move(a)), b = without_end_zeros(std::move(b));
  if (a.size() != b.size()) return a.size() < b.size();
  return !std::lexicographical_compare(b.rbegin(), b.rend(), a.rbegin(), a.rend());
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
           {"even_pairs", "0101001", "1"}, {"parity_check", "1010100", "1"}, {"cycle_navigation", "20100", "3", source},
           {"stack_manipulation", "0110422", "11020000"}, {"stack_manipulation", "110222", "2000000"},
           {"reverse_string", "011010", "010110"}, {"duplicate_string", "101", "101101"},
           {"odds_first", "00110101", "01000111"}, {"odds_first", "00110101", "01000111", paper},
           {"odds_first", "00110101", "01110100", source}, {"missing_duplicate", "01100210", "1"},
           {"missing_duplicate", "1011213", "0"}, {"binary_addition", "001201101", "0101120000"},
           {"binary_addition", "10012000001", "100101200000"}, {"binary_multiplication", "001201101", "000110120"},
           {"compute_sqrt", "100101", "110"}, {"compute_sqrt", "111", "10"}, {"bucket_sort", "10204112", "00111224"},
           // Printed examples, where 0 is True, without a root of 100010 that is not 101, and without two examples that
           // have a minus before a bracket, against the grammar.
           {"even_pairs", "00110", "0"}, {"parity_check", "000110", "0"}, {"modular_arithmetic", "15264", "4", paper},
           {"cycle_navigation", "011210", "2"}, {"stack_manipulation", "01100232", "011020000"},
           {"reverse_string", "00110", "01100"}, {"duplicate_string", "01001", "0100101001"},
           {"missing_duplicate", "10011021", "0"}, {"odds_first", "000100", "000010"},
           {"binary_addition", "100102101", "1011120000", paper}, {"bucket_sort", "421302214", "011222344"},
           {"compute_sqrt", "100010", "101"}}) {
    CAPTURE(each.problem);
    CAPTURE(each.string);
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

TEST_CASE("chomsky: sums, products and roots recomputed modulo primes, and by squaring") {
  for_many("binary_addition", check_sum);
  for_many("binary_multiplication", [](const Tokens& string, const Tokens& given, Reading) {
    REQUIRE(given.size() == string.size());
    Tokens product = before_end(given);
    if (string.size() <= 2) {
      CHECK(product == Tokens(string.size() - 1, 0));
      return;
    }
    CHECK(product.back() == 1);
    std::reverse(product.begin(), product.end());
    const auto [first, second] = numbers_of(string, Reading::source);
    for (const std::uint64_t prime : primes) {
      const Wide expected = static_cast<Wide>(remainder_of(first, prime)) * remainder_of(second, prime) % prime;
      CHECK(remainder_of(product, prime) == static_cast<std::uint64_t>(expected));
    }
  });
  for_many("compute_sqrt", [](const Tokens& string, const Tokens& given, Reading) {
    REQUIRE(given.size() == (string.size() + 1) / 2);
    const Tokens number(string.rbegin(), string.rend()), root(given.rbegin(), given.rend()),
        above = binary_sum(root, {1});
    CHECK(less_or_equal(binary_product(root, root), number));
    CHECK_FALSE(less_or_equal(binary_product(above, above), number));
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
    const auto root = static_cast<int>(remainder_of(binary_square_root(number), primes[0]));
    CHECK((root * root <= n && n < (root + 1) * (root + 1)));
  }
  CHECK_THROWS_WITH_AS(
      (void)terminated({1, 1}, 2), doctest::Contains("answer: 2 symbols given; below 2 required"), Error);
}
