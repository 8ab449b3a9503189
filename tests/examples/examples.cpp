// The examples: they are short, use the library alone, are listed, and print the right numbers.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "tests/support/programs.h"

using namespace whence::test;

namespace {

std::string source_of(const std::string& example) { return text_of(source_folder() + "/examples/" + example + ".cpp"); }

// Returns an example's output. It must end with 0.
std::string output_of(const std::string& example) {
  const Workplace here("example");
  const Outcome outcome = RunningProgram({}, program_folder() + "/examples/" + example).finish();
  REQUIRE_MESSAGE(outcome.code == 0, example, ": ", outcome.err);
  return outcome.out;
}

std::vector<double> numbers_behind(const std::string& words, const std::string& text) {
  std::vector<double> numbers;
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) {
    const char* const begin = text.c_str() + at + words.size();
    char* end = nullptr;
    const double number = std::strtod(begin, &end);
    if (end != begin) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

TEST_CASE("every example is short, uses the library alone and is listed; the first is printed as it is") {
  for (const auto& file : std::filesystem::directory_iterator(source_folder() + "/examples")) {
    if (file.path().extension() != ".cpp") continue;
    const std::string name = file.path().stem(), program = source_of(name);
    CAPTURE(name);
    CHECK(count(program, "\n") <= (name == "first" ? 24 : name == "minimal" ? 42 : name == "recall" ? 80 : 60));
    CHECK_FALSE(has(program, "#include \"examples/"));
    CHECK(has(text_of(source_folder() + "/examples/README.md"), "| [" + name + "](" + name + ".cpp) |"));
    if (name == "first") CHECK(has(text_of(source_folder() + "/README.md"), "```cpp\n" + program + "```\n"));
  }
}

TEST_CASE("first: y, dp and dt between two rows, and at a row, where dp is 0 and the reason is said") {
  CHECK(output_of("first") ==
        "p = 1.3  y = 1.9  dp = 3  dt = 0 0.7 0.3 0\n  1 entry: lives: the gradient passes\n"
        "p = 2  y = 4  dp = 0  dt = 0 0 1 0\n  1 entry: whole position in lerp_at (first.cpp:14): at a whole position "
        "floor and ceiling are one row; what is returned there is 0\n");
}

TEST_CASE("minimal: the loss falls, and every row of gates but the first has a gradient") {
  const std::string out = output_of("minimal");
  const std::vector<double> losses = numbers_behind("  loss ", out);
  REQUIRE(losses.size() == 4);
  CHECK(std::is_sorted(losses.rbegin(), losses.rend()));
  CHECK(losses.back() < 0.1);
  const std::string gradient = out.substr(0, out.find("\nrow 0 is 0")).substr(out.find("[[["));
  const auto rows = all_matches(gradient, "\\[([-0-9., e]+)\\]");
  REQUIRE(rows.size() == 8);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    CHECK((rows[i][1].find_first_of("123456789") != std::string::npos) == (i > 0));
  }
}

TEST_CASE("recall: both constructions put nearly all mass on the answer, and a mirrored kernel hardly any") {
  const std::string out = output_of("recall");
  for (const int length : {8, 32, 128, 512}) {
    const auto row = all_matches(out, "^ *" + std::to_string(length) + " +([0-9.]+) +([0-9.]+) +([0-9.]+)$");
    REQUIRE(row.size() == 1);
    const double weight = std::exp(std::log(length) + 4);
    CHECK(std::stod(row[0][1]) == doctest::Approx(weight / (weight + length - 1)).epsilon(1e-3));
    CHECK(std::stod(row[0][2]) < 0.01);
    CHECK(std::stod(row[0][3]) > 0.97);
  }
}

TEST_CASE("any_bias: by weights set by hand DAPE's network is ALiBi in one head and KERPLE in the other") {
  const auto rows = all_matches(output_of("any_bias"), R"(^ *(\d+) +(\S+) +(\S+) +(\S+) +(\S+)$)");
  REQUIRE(rows.size() == 12);
  for (const auto& row : rows) {
    const double distance = std::stod(row[1]), wanted[] = {-0.3 * distance, -2 * std::log1p(0.5 * distance)};
    for (const std::size_t head : {0, 1})
      for (const std::size_t k : {2, 3}) CHECK(std::abs(std::stod(row[2 * head + k]) - wanted[head]) < 2e-4);
  }
}

TEST_CASE("last_x: as the tour prints it; a bias by distance loses the x at Delta / delta, and CoPE nowhere") {
  const std::string out = output_of("last_x");
  CHECK(has(text_of(source_folder() + "/nn/README.md"), "```\n" + out + "```\n"));
  const auto rows = all_matches(out, R"(^ *(\d+) +([0-9.]+)(.) +([0-9.]+)(.) +([0-9.]+)(.) +([0-9.]+) $)");
  CHECK(rows.size() == 9);
  for (const auto& row : rows) {
    for (const int k : {0, 1, 2}) CHECK((row[3 + 2 * k] == "*") == (std::stod(row[1]) > std::vector{64, 32, 8}[k]));
    CHECK(std::stod(row[8]) > 0.999);
  }
}

TEST_CASE("language: the text is learned, and what is drawn is made of its words") {
  const std::string out = output_of("language");
  const std::vector<double> bits = numbers_behind("bits per byte ", out);
  REQUIRE(bits.size() == 4);
  CHECK(bits.back() < 0.2);
  CHECK(has(out.substr(out.rfind("byte")), "that Jack built. This is the"));
}

TEST_CASE("own_scheme: right gradients and equal rows in every sum") {
  const std::string out = output_of("own_scheme");
  CHECK(numbers_behind(": ", out) == std::vector<double>{37, 37, 45, 39});
  CHECK(std::ranges::count(out, '\n') == 4);
  CHECK_FALSE((has(out, "FAILED") || has(out, "differ")));
}

TEST_CASE("own_op: two right derivatives, and a mistake of a thousandth is found") {
  const std::string out = output_of("own_op"),
                    wrong = "with a factor of 1.001, which the check has to find\ngradcheck: ";
  CHECK(out.starts_with("gradient\ngradcheck: ok\n"));
  CHECK(has(out, "gradient of the gradient\ngradcheck: ok\n"));
  CHECK(has(out, wrong + "FAILED\n"));
}

TEST_CASE("looking_inside: the terms add up to the gradient, zeros have causes, and a shut gate changes the loss") {
  const std::string out = output_of("looking_inside");
  const double gradient = numbers_behind("d loss / d gates[0,0,5,4] = ", out).at(0);
  double sum = 0;
  for (const double term : numbers_behind("\n  ", out)) sum += term;
  CHECK(gradient != 0);
  CHECK(sum == doctest::Approx(gradient).epsilon(1e-4));
  CHECK(has(out, "clamped in lerp_at"));
  CHECK(
      numbers_behind("by the gradient the loss changes by ", out).at(0) * numbers_behind("and it does by ", out).at(0) >
      0);
}

TEST_CASE("half_precision: 16 bits learn what 32 do") {
  const std::string out = output_of("half_precision");
  const std::vector<double> losses = numbers_behind("step 200 loss ", out);
  REQUIRE(losses.size() == 3);
  for (const double loss : losses) CHECK(loss == doctest::Approx(losses[0]).epsilon(0.1));
  CHECK(numbers_behind("bytes of a weight ", out) == std::vector<double>{4, 2, 2});
  CHECK(numbers_behind("loss scale ", out).at(0) >= 65536);
}

TEST_CASE("resumed_run: the same bits as without a stop") {
  const std::string out = output_of("resumed_run");
  CHECK(has(out, "resumed by resumed_run/step-000025\n"));
  CHECK(out.ends_with("the same bits in every weight\n"));
}
