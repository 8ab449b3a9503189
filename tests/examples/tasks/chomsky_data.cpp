// The strings of the Chomsky-hierarchy tasks: their distribution, shortest lengths, batches, test sets, guesses and
// options. For the cutting of batches see tasks.cpp.
#include <doctest/doctest.h>
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "examples/whence/tasks/chomsky.h"
#include "tensor/error.h"

using namespace whence;
using namespace whence::tasks;

namespace {

Tokens drawn(const std::string& name, index_t length, std::uint64_t number, Reading reading = Reading::source) {
  Draw draw(Stream(11, name, number));
  const ChomskyProblem& problem = *std::ranges::find(chomsky_problems(), name, &ChomskyProblem::name);
  const Tokens string = problem.draw(draw, length, reading);
  for (const std::int64_t token : string) REQUIRE((token >= 0 && token < std::ssize(problem.symbols)));
  return string;
}

template <class Function>
auto counted(const std::string& name, index_t length, int strings, Reading reading, const Function& f) {
  std::map<decltype(f(Tokens{})), int> counts;
  for (int number = 0; number < strings; ++number)
    ++counts[f(drawn(name, length, static_cast<std::uint64_t>(number), reading))];
  return counts;
}

std::set<Tokens> support(const std::string& name, index_t length, Reading reading = Reading::source) {
  std::set<Tokens> strings;
  for (const auto& [string, count] : counted(name, length, 2000, reading, [](const Tokens& each) { return each; }))
    strings.insert(string);
  return strings;
}

// Checks a share within five standard deviations.
void check_share(int count, int total, double p) {
  CHECK(std::abs(count - total * p) < 5 * std::sqrt(total * p * (1 - p)));
}

template <class Counts> void check_uniform(const Counts& counts, std::size_t values) {
  CHECK(counts.size() == values);
  int total = 0;
  for (const auto& [value, count] : counts) total += count;
  for (const auto& [value, count] : counts) check_share(count, total, 1 / static_cast<double>(values));
}

double accuracy(const Guess& guess, const Batch& batch) {
  Errors errors;
  errors.add(batch, guess.predict(batch));
  return 100 - errors.token_percent();
}

}  // namespace

TEST_CASE("chomsky: strings of one, two and three symbols are exactly the defined ones") {
  for (const char* name : {"parity_check", "reverse_string", "duplicate_string", "odds_first"})
    CHECK(support(name, 3).size() == 8);
  CHECK(support("modular_arithmetic", 2) == std::set<Tokens>{{0}, {1}, {2}, {3}, {4}});  // made odd
  CHECK(support("stack_manipulation", 2) == std::set<Tokens>{{0, 2}, {0, 3}, {0, 4}, {1, 2}, {1, 3}, {1, 4}});
  CHECK(support("modular_arithmetic_brackets", 3) ==
        std::set<Tokens>{{8, 0, 9}, {8, 1, 9}, {8, 2, 9}, {8, 3, 9}, {8, 4, 9}});
  CHECK(support("solve_equation", 3) == std::set<Tokens>{{9, 10, 0}, {9, 10, 1}, {9, 10, 2}, {9, 10, 3}, {9, 10, 4}});
  CHECK(support("missing_duplicate", 3) == std::set<Tokens>{{2, 0, 3}, {2, 1, 3}, {0, 2, 3}, {1, 2, 3}});
  CHECK(support("stack_manipulation", 3).size() == 30);
  CHECK(support("solve_equation", 2).size() == 1);
  CHECK(support("missing_duplicate", 1).size() == 1);
  for (const char* name : {"binary_addition", "binary_multiplication"}) {
    CHECK(support(name, 2) == std::set<Tokens>{{0, 0}, {1, 0}, {0, 1}});
    CHECK(support(name, 3) == std::set<Tokens>{{1, 2, 1}});
    CHECK(support(name, 4).size() == 6);
  }
  CHECK(support("binary_addition", 2, Reading::paper) == std::set<Tokens>{{0, 0}, {0, 1}, {1, 0}});
  CHECK(support("compute_sqrt", 2) == std::set<Tokens>{{0, 1}, {1, 0}, {1, 1}});
}

TEST_CASE("chomsky: what is drawn uniformly is uniform") {
  const auto whole = [](const Tokens& string) { return string; };
  const std::tuple<const char*, index_t, std::size_t, Reading> all[] = {{"even_pairs", 5, 32, Reading::source},
      {"cycle_navigation", 3, 27, Reading::source}, {"bucket_sort", 2, 25, Reading::source},
      {"modular_arithmetic", 3, 75, Reading::source}, {"modular_arithmetic", 3, 50, Reading::paper},
      {"modular_arithmetic_brackets", 5, 75, Reading::source}, {"compute_sqrt", 4, 15, Reading::source},
      {"missing_duplicate", 4, 16, Reading::source}};
  for (const auto& [name, length, values, reading] : all)
    check_uniform(counted(name, length, 15000, reading, whole), values);
  // The stack's length is uniform on 1 ... l - 1; the actions are pop, push 0 and push 1.
  const auto stack = [](const Tokens& string) {
    return std::count_if(string.begin(), string.end(), [](auto symbol) { return symbol < 2; });
  };
  check_uniform(counted("stack_manipulation", 12, 8000, Reading::source, stack), 11);
  check_uniform(
      counted("stack_manipulation", 12, 8000, Reading::source, [](const Tokens& string) { return string.back(); }), 3);
  // The separator is uniform on 1 ... l - 2, and so is each positive number, given its place.
  const auto separator = [](const Tokens& string) {
    return std::find(string.begin(), string.end(), 2) - string.begin();
  };
  check_uniform(counted("binary_addition", 12, 8000, Reading::paper, separator), 10);
  check_uniform(counted("binary_multiplication", 40, 8000, Reading::source, separator), 38);
  const auto pairs = counted("binary_addition", 6, 8000, Reading::source, whole);
  int two_and_three = 0;
  for (const auto& [string, count] : pairs) two_and_three += string[2] == 2 ? count : 0;
  CHECK(pairs.size() == 15 + 21 + 21 + 15);
  check_share(two_and_three, 8000, 0.25);
  check_share(pairs.at({1, 0, 2, 0, 1, 1}), 8000, 1.0 / 84);  // 1/4 for the place, 1/3 and 1/7 for the numbers
}

TEST_CASE("chomsky: guesses have the scores that the papers' tables begin at") {
  // Products make 0 frequent: a constant guess has about the score of nearly every scheme in the papers.
  const auto brackets =
      make_task("modular_arithmetic_brackets", {"--test-from", "100", "--test-to", "300", "--test-every", "100"});
  std::vector<Guess> guesses = brackets->guesses();
  CHECK((guesses.size() == 2 && guesses[0].name == "majority" && guesses[1].name == "random"));
  for (const std::size_t set : {0u, 1u, 2u}) {
    const Batch batch = brackets->test_batch(set, 3, 0, 2000);
    CHECK(accuracy(guesses[0], batch) == doctest::Approx(31).epsilon(0.11));
    CHECK(accuracy(guesses[1], batch) == doctest::Approx(20).epsilon(0.16));
  }
}

TEST_CASE("chomsky: a batch is strings, placeholders, and answers there") {
  for (const ChomskyProblem& problem : chomsky_problems()) {
    CAPTURE(problem.name);
    const auto task = make_task(problem.name, {"--test-from", "10", "--test-to", "20", "--test-every", "5"});
    for (std::size_t set = 0; set < 3; ++set) {
      const Batch batch = task->test_batch(set, 1, 0, 40);
      REQUIRE(batch.sequences == 40);
      REQUIRE(batch.inputs.size() == static_cast<std::size_t>(40 * batch.positions));
      for (index_t number = 0; number < 40; ++number) {
        const Row row = batch.row(number);
        const auto first = std::ranges::find(row.inputs, std::ssize(problem.symbols)) - row.inputs.begin();
        const Tokens string(row.inputs.begin(), row.inputs.begin() + first);
        Tokens given(row.targets.begin() + first, row.targets.end());
        CHECK(given == problem.answer(string, problem.default_reading.value_or(Reading::source)));
        CHECK(std::ranges::count(row.inputs, std::ssize(problem.symbols)) == std::ssize(given));
        CHECK(std::ranges::count(row.targets, no_target) == first);
        // Graded up to the first 2, for the three tasks with an end.
        const bool ends = problem.name == "stack_manipulation" || problem.name.starts_with("binary");
        const auto end = ends ? std::find(given.begin(), given.end(), 2) + 1 : given.end();
        std::fill(end, given.end(), no_target);
        given.insert(given.begin(), static_cast<std::size_t>(first), no_target);
        CHECK(row.graded == given);
      }
    }
  }
}

TEST_CASE("chomsky: training lengths are uniform; no test string of training length is one that is trained on") {
  const auto task = make_task("reverse_string", {"--test-from", "40", "--test-to", "40"});
  std::map<index_t, int> lengths;
  std::set<Tokens> trained;
  for (std::int64_t step = 1; step <= 8000; ++step) {
    const Batch batch = task->training_batch(0, step, 2);
    ++lengths[batch.positions / 2];
    if (batch.positions != 80) continue;
    for (index_t row = 0; row < 2; ++row) trained.insert(batch.row(row).inputs);
  }
  CHECK(lengths.begin()->first == 1);
  CHECK(lengths.rbegin()->first == 40);
  check_uniform(lengths, 40);
  CHECK(trained.size() > 300);
  const Batch test = task->test_batch(0, 0, 0, 500);
  for (index_t row = 0; row < 500; ++row) CHECK_FALSE(trained.contains(test.row(row).inputs));
}

TEST_CASE("chomsky: options and sets") {
  const auto standard = make_task("reverse_string"),
             small = make_task("odds_first", {"--reading", "source", "--train-to", "7", "--test-from", "8", "--test-to",
                                                 "20", "--test-every", "5"});
  CHECK((standard->test_sets().size() == 460 && standard->test_sets().back().name == "length 500"));
  REQUIRE(small->test_sets().size() == 3);
  CHECK(small->test_sets()[2].name == "length 18");
  CHECK(small->test_batch(2, 0, 0, 1).positions == 36);
  for (std::int64_t step = 1; step < 50; ++step) CHECK(small->training_batch(0, step, 1).positions <= 14);
  CHECK_THROWS_AS((void)make_task("reverse_string", {"--reading", "paper"}), InputError);  // one definition only
  CHECK_THROWS_AS((void)make_task("odds_first", {"--test-from", "50", "--test-to", "49"}), InputError);
  CHECK_THROWS_AS((void)make_task("odds_first", {"--reading", "book"}), InputError);
}
