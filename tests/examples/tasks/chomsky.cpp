// The answers of the fifteen Chomsky-hierarchy tasks: printed examples, and every label recomputed along another path.
#include "examples/whence/tasks/chomsky.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/words.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "examples/whence/tasks/binary_integers.h"
#include "tensor/error.h"
#include "tests/support/places.h"

using namespace whence;
using namespace whence::tasks;

namespace {

__extension__ using Wide = unsigned __int128;

Tokens answer(const std::string& problem, const Tokens& string, Reading reading) {
  return chomsky_problem(problem).answer(string, reading);
}
Tokens answer(const std::string& problem, const Tokens& string) {
  return answer(problem, string, chomsky_problem(problem).default_reading.value_or(Reading::source));
}

Tokens drawn(const ChomskyProblem& problem, index_t length, std::uint64_t number, Reading reading) {
  Draw draw(Stream(5, problem.name, number));
  return problem.draw(draw, length, reading);
}

// Calls check(string, answer) for many strings of a problem: lengths 1 ... 44, some near
// powers of two, the longest tested.
template <class Check> void for_many(const std::string& name, Reading reading, const Check& check) {
  const ChomskyProblem& problem = chomsky_problem(name);
  std::vector<index_t> lengths(44);
  std::iota(lengths.begin(), lengths.end(), 1);
  for (const index_t length : {63, 64, 65, 127, 128, 129, 255, 256, 257, 499, 500}) lengths.push_back(length);
  for (const index_t length : lengths) {
    CAPTURE(name);
    CAPTURE(length);
    for (std::uint64_t number = 0; number < 25; ++number) {
      const Tokens string = drawn(problem, length, number, reading);
      REQUIRE(
          static_cast<index_t>(string.size()) == (name == "modular_arithmetic" ? length - (length + 1) % 2 : length));
      const Tokens given = problem.answer(string, reading);
      for (const std::int64_t token : given) REQUIRE((token >= 0 && token < problem.outputs));
      check(string, given);
    }
  }
}
template <class Check> void for_many(const std::string& name, const Check& check) {
  for_many(name, chomsky_problem(name).default_reading.value_or(Reading::source), check);
}

// What stands before the end of a terminated answer. Behind it: zeros.
Tokens before_end(const Tokens& given) {
  const auto end = std::find(given.begin(), given.end(), end_of_answer);
  REQUIRE(end != given.end());
  CHECK(std::all_of(end + 1, given.end(), [](std::int64_t token) { return token == 0; }));
  return {given.begin(), end};
}

std::string characters(const std::string& problem, const Tokens& string) {
  std::string text;
  for (const std::int64_t symbol : string)
    text += chomsky_problem(problem).symbols.at(static_cast<std::size_t>(symbol));
  return text;
}

// ---- Arithmetic mod 5 by rewriting text.

int in_range(int value) { return (value % 5 + 5) % 5; }

// No brackets: split at the last + or -, else at the last *. A sign before and after an operator belongs to its digit.
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

// The innermost pair of brackets becomes its value until none is left.
int bracket_value(std::string text) {
  for (std::size_t close = text.find(')'); close != std::string::npos; close = text.find(')')) {
    const std::size_t open = text.rfind('(', close);
    text.replace(open, close - open + 1, std::to_string(flat_value(text.substr(open + 1, close - open - 1))));
  }
  return flat_value(text);
}

// ---- Binary numbers, most significant digit first, as machine words and modulo primes.

Wide wide(const Tokens& digits) {
  REQUIRE(digits.size() <= 127);
  Wide value = 0;
  for (const std::int64_t digit : digits) value = 2 * value + static_cast<Wide>(digit);
  return value;
}

std::uint64_t remainder_of(const Tokens& digits, std::uint64_t prime) {
  std::uint64_t value = 0;
  for (const std::int64_t digit : digits) value = (2 * value + static_cast<std::uint64_t>(digit)) % prime;
  return value;
}

// Three primes near 2^61 agree by chance about once in 2^183.
constexpr std::uint64_t primes[] = {2305843009213693951ull, 2305843009213693921ull, 2305843009213693907ull};

struct Pair {
  Tokens first, second;
};

// The numbers of "n 2 m", most significant digit first.
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
    CHECK(wide(sum) == wide(number));
    CHECK((sum.size() == 1 || sum.front() == 1));
    return;
  }
  CHECK(sum.front() == 1);
  const auto [first, second] = numbers_of(string, reading);
  if (string.size() <= 120) CHECK(wide(sum) == wide(first) + wide(second));
  for (const std::uint64_t prime : primes)
    CHECK(remainder_of(sum, prime) == (remainder_of(first, prime) + remainder_of(second, prime)) % prime);
}

bool less_or_equal(Tokens a, Tokens b) {  // least significant digit first
  a = without_end_zeros(std::move(a)), b = without_end_zeros(std::move(b));
  if (a.size() != b.size()) return a.size() < b.size();
  return !std::lexicographical_compare(b.rbegin(), b.rend(), a.rbegin(), a.rend());
}

}  // namespace

TEST_CASE("chomsky: the pairs of task_examples.json") {
  const auto file =
      nlohmann::json::parse(std::ifstream(test::source_folder() + "/tests/examples/tasks/task_examples.json"));
  const std::vector<std::pair<std::string, std::string>> names{{"even_pairs", "even_pairs"}, {"parity", "parity_check"},
      {"stack", "stack_manipulation"}, {"reverse", "reverse_string"}, {"duplicate", "duplicate_string"},
      {"missing_duplicate", "missing_duplicate"}, {"binary_addition", "binary_addition"},
      {"binary_multiplication", "binary_multiplication"}, {"compute_sqrt", "compute_sqrt"},
      {"bucket_sort", "bucket_sort"}};
  int checked = 0;
  for (const auto& name : names) {
    const std::string &key = name.first, &problem = name.second;
    CAPTURE(key);
    for (const auto& example : file.at(key)) {
      const auto& output = example.at("o");
      CHECK(answer(problem, example.at("i").get<Tokens>()) ==
            (output.is_array() ? output.get<Tokens>() : Tokens{output.get<int>()}));
      ++checked;
    }
  }
  for (const auto& example : file.at("cycle_navigation")) {
    CHECK(answer("cycle_navigation", example.at("i_tokens").get<Tokens>(), Reading::source) ==
          Tokens{example.at("o").get<int>()});
    ++checked;
  }
  for (const auto& example : file.at("odds_first")) {
    const auto string = example.at("i").get<Tokens>();
    CHECK(answer("odds_first", string, Reading::paper) == example.at("paper_order").get<Tokens>());
    CHECK(answer("odds_first", string, Reading::source) == example.at("source_code_order").get<Tokens>());
    CHECK(answer("odds_first", string) == example.at("paper_order").get<Tokens>());
    ++checked;
  }
  CHECK(checked == 18);  // all of the file but flip_flop's
}

TEST_CASE("chomsky: the examples that the DAPE papers print") {
  CHECK(answer("even_pairs", {0, 0, 1, 1, 0}) == Tokens{0});       // True
  CHECK(answer("parity_check", {0, 0, 0, 1, 1, 0}) == Tokens{0});  // True
  CHECK(answer("modular_arithmetic", {1, 5, 2, 6, 4}, Reading::paper) == Tokens{4});
  CHECK(answer("cycle_navigation", {0, 1, 1, 2, 1, 0}) == Tokens{2});
  CHECK(answer("stack_manipulation", {0, 1, 1, 0, 0, 2, 3, 2}) == Tokens{0, 1, 1, 0, 2, 0, 0, 0, 0});
  CHECK(answer("reverse_string", {0, 0, 1, 1, 0}) == Tokens{0, 1, 1, 0, 0});
  CHECK(answer("duplicate_string", {0, 1, 0, 0, 1}) == Tokens{0, 1, 0, 0, 1, 0, 1, 0, 0, 1});
  CHECK(answer("missing_duplicate", {1, 0, 0, 1, 1, 0, 2, 1}) == Tokens{0});
  CHECK(answer("odds_first", {0, 0, 0, 1, 0, 0}) == Tokens{0, 0, 0, 0, 1, 0});
  CHECK(answer("binary_addition", {1, 0, 0, 1, 0, 2, 1, 0, 1}, Reading::paper) == Tokens{1, 0, 1, 1, 1, 2, 0, 0, 0, 0});
  CHECK(answer("bucket_sort", {4, 2, 1, 3, 0, 2, 2, 1, 4}) == Tokens{0, 1, 1, 2, 2, 2, 3, 4, 4});
  // Not these: the root of 100010 is 101, and both the two bracket examples have a
  // minus before a bracket, which the grammar lacks.
  CHECK(answer("compute_sqrt", {1, 0, 0, 0, 1, 0}) == Tokens{1, 0, 1});
}

TEST_CASE("chomsky: regular answers recomputed") {
  for_many("even_pairs",
      [](const Tokens& string, const Tokens& given) { CHECK(given == Tokens{string.front() != string.back()}); });
  for_many("parity_check", [](const Tokens& string, const Tokens& given) {
    CHECK(given == Tokens{std::accumulate(string.begin(), string.end(), std::int64_t{0}, std::bit_xor<>())});
  });
  for (const Reading reading : {Reading::paper, Reading::source}) {
    for_many("cycle_navigation", reading, [reading](const Tokens& string, const Tokens& given) {
      const auto count = [&](std::int64_t symbol) {
        return static_cast<int>(std::count(string.begin(), string.end(), symbol));
      };
      CHECK(given == Tokens{in_range(reading == Reading::paper ? count(1) - count(2) : count(2) - count(0))});
    });
    for_many("modular_arithmetic", reading, [](const Tokens& string, const Tokens& given) {
      CHECK(given == Tokens{flat_value(characters("modular_arithmetic", string))});
    });
  }
}

TEST_CASE("chomsky: context-free answers recomputed") {
  for_many("stack_manipulation", [](const Tokens& string, const Tokens& given) {
    REQUIRE(given.size() == string.size() + 1);
    // From the end: a pop takes the next symbol that is pushed before it.
    Tokens stack;
    std::int64_t pops = 0;
    for (auto symbol = string.rbegin(); symbol != string.rend(); ++symbol)
      if (*symbol == 2)
        ++pops;
      else if (pops > 0)
        --pops;
      else
        stack.push_back(*symbol % 3);
    CHECK(before_end(given) == stack);
  });
  for_many("reverse_string", [](const Tokens& string, const Tokens& given) {
    REQUIRE(given.size() == string.size());
    for (std::size_t i = 0; i < string.size(); ++i) CHECK(given[i] == string[string.size() - 1 - i]);
  });
  for_many("modular_arithmetic_brackets", [](const Tokens& string, const Tokens& given) {
    CHECK(given == Tokens{bracket_value(characters("modular_arithmetic_brackets", string))});
  });
  for_many("solve_equation", [](const Tokens& string, const Tokens& given) {
    REQUIRE(given.size() == 1);
    if (string.size() < 3) {
      CHECK(given == Tokens{0});
      CHECK(std::count(string.begin(), string.end(), 0) == static_cast<std::ptrdiff_t>(string.size()));
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
}

TEST_CASE("chomsky: context-sensitive answers recomputed") {
  for_many("duplicate_string", [](const Tokens& string, const Tokens& given) {
    REQUIRE(given.size() == 2 * string.size());
    for (std::size_t i = 0; i < given.size(); ++i) CHECK(given[i] == string[i % string.size()]);
  });
  for_many("missing_duplicate", [](const Tokens& string, const Tokens& given) {
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
    REQUIRE(std::count(filled.begin(), filled.end(), 2) == 1);
    std::replace(filled.begin(), filled.end(), std::int64_t{2}, given[0]);
    CHECK(std::equal(filled.begin(), filled.begin() + static_cast<std::ptrdiff_t>(filled.size() / 2),
        filled.begin() + static_cast<std::ptrdiff_t>(filled.size() / 2)));
  });
  for (const Reading reading : {Reading::paper, Reading::source}) {
    for_many("odds_first", reading, [reading](const Tokens& string, const Tokens& given) {
      REQUIRE(given.size() == string.size());
      const std::size_t size = string.size(), odd = (size + 1) / 2, even = size / 2;
      for (std::size_t i = 0; i < size; ++i) {  // where symbol i goes
        const std::size_t place = i % 2 == 0 ? i / 2 + (reading == Reading::source ? even : 0)
                                             : i / 2 + (reading == Reading::source ? 0 : odd);
        CHECK(given[place] == string[i]);
      }
    });
  }
  for_many("bucket_sort", [](const Tokens& string, const Tokens& given) {
    Tokens expected;
    for (std::int64_t symbol = 0; symbol < 5; ++symbol)
      expected.insert(
          expected.end(), static_cast<std::size_t>(std::count(string.begin(), string.end(), symbol)), symbol);
    CHECK(given == expected);
  });
}

TEST_CASE("chomsky: sums, products and roots recomputed in machine words, modulo primes, and by squaring") {
  for (const Reading reading : {Reading::paper, Reading::source}) {
    for_many("binary_addition", reading,
        [reading](const Tokens& string, const Tokens& given) { check_sum(string, given, reading); });
  }
  for_many("binary_multiplication", [](const Tokens& string, const Tokens& given) {
    REQUIRE(given.size() == string.size());
    Tokens product = before_end(given);
    if (string.size() <= 2) {
      CHECK(product == Tokens(string.size() - 1, 0));
      return;
    }
    CHECK(product.back() == 1);
    std::reverse(product.begin(), product.end());
    const auto [first, second] = numbers_of(string, Reading::source);
    if (string.size() <= 120) CHECK(wide(product) == wide(first) * wide(second));
    for (const std::uint64_t prime : primes) {
      const Wide expected = static_cast<Wide>(remainder_of(first, prime)) * remainder_of(second, prime) % prime;
      CHECK(remainder_of(product, prime) == static_cast<std::uint64_t>(expected));
    }
  });
  for_many("compute_sqrt", [](const Tokens& string, const Tokens& given) {
    REQUIRE(given.size() == (string.size() + 1) / 2);
    const Tokens number(string.rbegin(), string.rend()), root(given.rbegin(), given.rend()),
        above = binary_sum(root, {1});
    CHECK(less_or_equal(binary_product(root, root), number));
    CHECK_FALSE(less_or_equal(binary_product(above, above), number));
    if (string.size() > 120) return;
    const Wide n = wide(string), r = wide(given);
    CHECK(r * r <= n);
    CHECK((r + 1) * (r + 1) > n);
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
    const auto root = static_cast<int>(wide(binary_square_root(number)));
    CHECK((root * root <= n && n < (root + 1) * (root + 1)));
  }
  CHECK_THROWS_AS((void)terminated({1, 1}, 2), Error);
}
