// The flip-flop generator: independent labels, the closed form of its statistics, and edge cases of its definition.
#include "examples/whence/tasks/flip_flop.h"

#include <doctest/doctest.h>
#include <array>
#include <cmath>

#include "tensor/error.h"

using namespace whence;
using namespace whence::tasks;

namespace {

// Returns the answer of a string from the text alone: the character after the last 'w'.
char answer(const std::string& string) { return string[string.rfind('w') + 1]; }

Tokens tokens_of(const std::string& string) {
  Tokens tokens;
  for (const char symbol : string) tokens.push_back(static_cast<std::int64_t>(flip_flop_symbols.find(symbol)));
  return tokens;
}

std::string text(const Tokens& tokens) {
  std::string text;
  for (const std::int64_t token : tokens) text += flip_flop_symbols.at(static_cast<std::size_t>(token));
  return text;
}

Tokens sample(index_t length, const DrawnSet& set, std::uint64_t seed, std::uint64_t number) {
  return flip_flop_string(length, static_cast<double>(set.value) / 100, Stream(seed, set.purpose, number));
}

}  // namespace

TEST_CASE("flip-flop: every read bit is the bit of the most recent w, recomputed from the text") {
  for (const DrawnSet& set : flip_flop_sets()) {
    for (std::uint64_t index = 0; index < 200; ++index) {
      const std::string string = text(sample(64, set, 1, index));
      REQUIRE(string.size() == 64);
      CHECK(string[0] == 'w');
      CHECK(string[62] == 'r');
      for (std::size_t i = 0; i < string.size(); i += 2) {
        REQUIRE(std::string("wri").find(string[i]) != std::string::npos);
        REQUIRE((string[i + 1] == '0' || string[i + 1] == '1'));
        if (string[i] == 'r') CHECK(string[i + 1] == answer(string.substr(0, i)));
      }
    }
  }
}

TEST_CASE("flip-flop: mean reads, distances and marginals as computed and as published") {
  // Sequences of T = 512: their count, and the mean distance from the governing w to its r, with a bound.
  const std::array<double, 3> rows[] = {{3000, 19, 0.6}, {3000, 19, 0.6}, {6000, 144, 6}, {500, 4.4, 0.1}};
  for (std::size_t k = 0; k < std::size(rows); ++k) {
    const DrawnSet& set = flip_flop_sets()[k];
    const auto [count, expected, bound_of_distance] = rows[k];
    CAPTURE(set.about.name);
    double reads = 0, distance = 0, ones = 0, ignores = 0;
    for (std::uint64_t index = 0; index < static_cast<std::uint64_t>(count); ++index) {
      const Tokens tokens = sample(512, set, 7, index);
      for (std::size_t i = 0, written = 0; i < tokens.size(); i += 2) {
        if (tokens[i] == write_token) written = i;
        ignores += tokens[i] == ignore_token;
        ones += tokens[i + 1] == one_token;
        if (tokens[i] == read_token) ++reads, distance += static_cast<double>(i - written);
      }
    }
    const double p = static_cast<double>(set.value) / 100, read = (1 - p) / 2;
    CHECK(std::abs(reads / count - (1 + 254 * read)) < 5 * std::sqrt(254 * read * (1 - read) / count));
    CHECK(std::abs(distance / reads - expected) < bound_of_distance);
    CHECK(std::abs(ignores / (254 * count) - p) < 5 * std::sqrt(p * (1 - p) / (254 * count)));
    CHECK(std::abs(ones / (256 * count) - 0.5) < 0.01);
  }
}

TEST_CASE("flip-flop: targets are the next tokens, only behind r by default; reads alone are graded") {
  const Batch reads = make_task("flip_flop", {"--length", "20"})->training_batch(3, 1, 4);
  const Batch all = make_task("flip_flop", {"--length", "20", "--targets", "all"})->training_batch(3, 1, 4);
  CHECK(reads.sequences == 4);
  CHECK(reads.positions == 19);
  REQUIRE(reads.inputs.size() == 4 * 19);
  CHECK(reads.inputs == all.inputs);
  CHECK(reads.graded == all.graded);
  CHECK(reads.targets == reads.graded);
  for (std::uint64_t row = 0; row < 4; ++row) {
    const Tokens tokens = sample(20, flip_flop_sets()[0], 3, row);
    for (std::size_t t = 0; t < 19; ++t) {
      const std::size_t at = row * 19 + t;
      CHECK(all.inputs[at] == tokens[t]);
      CHECK(all.targets[at] == tokens[t + 1]);
      CHECK(reads.targets[at] == (tokens[t] == read_token ? tokens[t + 1] : no_target));
    }
  }
}

TEST_CASE("flip-flop: guesses on a string worked by hand") {
  const std::vector<Guess> guesses =
      make_task("flip_flop")->guesses();  // always 0, first bit, last bit of any pair, most frequent bit
  REQUIRE(guesses.size() == 4);
  // Counts each guess's wrong reads in these strings, all of one length.
  const auto wrong = [&guesses](const std::vector<std::string>& strings) {
    Batch batch{
        .sequences = static_cast<index_t>(strings.size()), .positions = static_cast<index_t>(strings[0].size()) - 1};
    for (const std::string& string : strings) {
      const Tokens tokens = tokens_of(string);
      for (std::size_t t = 0; t + 1 < tokens.size(); ++t) {
        batch.inputs.push_back(tokens[t]);
        batch.graded.push_back(tokens[t] == read_token ? tokens[t + 1] : no_target);
      }
    }
    batch.targets = batch.graded;
    std::vector<std::int64_t> found;
    for (const Guess& guess : guesses) {
      Errors errors;
      errors.add(batch, guess.predict(batch));
      found.push_back(errors.wrong_tokens);
    }
    return found;
  };
  CHECK(wrong({"w1i0r1i0r1"}) == std::vector<std::int64_t>{2, 0, 2, 2});  // 1:1 and 2:2, a tie is 0
  // Each sequence starts its own count.
  CHECK(wrong({"w1r1", "w0r0"}) == std::vector<std::int64_t>{1, 0, 0, 0});
  CHECK(wrong({"w0r0", "w1r1"}) == std::vector<std::int64_t>{1, 0, 0, 0});
}

TEST_CASE("flip-flop: lengths that make no string are refused") {
  for (const index_t length : {-4, 0, 2, 3, 7, 511})
    CHECK_THROWS_WITH_AS((void)flip_flop_string(length, 0.8, Stream()),
        doctest::Contains(to_text("length ", length, " given").c_str()), InputError);
  CHECK_NOTHROW((void)flip_flop_string(4, 0.0, Stream()));
}
