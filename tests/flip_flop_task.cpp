// The flip-flop generator against independent labels, the closed form of its statistics, and its definition's edges.
#include "examples/tasks/flip_flop.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <set>

#include "tensor/error.h"

using namespace whence;
using namespace whence::tasks;

namespace {

// The answer of a string, found from the text alone: the character behind the last 'w'.
char answer(const std::string& string) { return string[string.rfind('w') + 1]; }

struct Statistics {
  double mean_reads = 0, mean_distance = 0, ones = 0, ignores = 0;
};

// Over `count` sequences of T = 512. Distance: tokens from the governing w to its r.
Statistics measure(const FlipFlopSet& set, int count) {
  double reads = 0, distance = 0, ones = 0, ignores = 0;
  for (int index = 0; index < count; ++index) {
    const Tokens tokens = sample({512, set.p_ignore}, Stream(7, set.purpose, static_cast<std::uint64_t>(index)));
    std::size_t written = 0;
    for (std::size_t i = 0; i < tokens.size(); i += 2) {
      if (tokens[i] == write_token) written = i;
      if (tokens[i] == ignore_token) ++ignores;
      if (tokens[i + 1] == one_token) ++ones;
      if (tokens[i] == read_token) {
        ++reads;
        distance += static_cast<double>(i - written);
      }
    }
  }
  return {reads / count, distance / reads, ones / (256.0 * count), ignores / (254.0 * count)};
}

}  // namespace

TEST_CASE("flip-flop: the worked example and other strings") {
  const Tokens example = parse("w0i1r0w1i0i1i1r");
  CHECK(stored_bit(example) == one_token);
  CHECK(text(example) == "w0i1r0w1i0i1i1r");
  CHECK(example == Tokens{0, 3, 2, 4, 1, 3, 0, 4, 2, 3, 2, 4, 2, 4, 1});
  CHECK(stored_bit(parse("w1w0i1r")) == zero_token);
  CHECK(stored_bit(parse("w1w")) == one_token);  // the second w has no bit yet
  CHECK_THROWS_AS((void)stored_bit(Tokens{ignore_token, one_token}), Error);
}

TEST_CASE("flip-flop: strings that are none") {
  const auto refusal = [](std::string_view string) -> std::string {
    try {
      (void)parse(string);
    } catch (const InputError& error) { return error.what(); }
    return "accepted";
  };
  CHECK(refusal("w0x1") ==
        "flip-flop string: character 3: an unknown one given; an instruction w, r or i required; example: w0i1r0");
  CHECK(refusal("wi") == "flip-flop string: character 2: i given; a bit 0 or 1 required; example: w0i1r0");
  CHECK(refusal("i1w0") == "flip-flop string: character 1: i given; w at the beginning required; example: w0i1r0");
  CHECK(refusal("w0i1r1") ==
        "flip-flop string: character 6: 1 given; the bit of the most recent w required; example: w0i1r0");
  CHECK(refusal("w00") != "accepted");
  CHECK(refusal("") != "accepted");
  CHECK(refusal(std::string_view("w\0", 2)) != "accepted");
}

TEST_CASE("flip-flop: every read bit is the bit of the most recent w, recomputed from the text") {
  for (const FlipFlopSet& set : {training_set, in_distribution_set, sparse_set, dense_set}) {
    for (std::uint64_t index = 0; index < 200; ++index) {
      const std::string string = text(sample({64, set.p_ignore}, Stream(1, set.purpose, index)));
      REQUIRE(string.size() == 64);
      CHECK(string[0] == 'w');
      CHECK(string[62] == 'r');
      for (std::size_t i = 0; i < string.size(); i += 2) {
        REQUIRE(std::string("wri").find(string[i]) != std::string::npos);
        REQUIRE((string[i + 1] == '0' || string[i + 1] == '1'));
        if (string[i] == 'r') CHECK(string[i + 1] == answer(string.substr(0, i)));
      }
      CHECK(text(parse(string)) == string);
    }
  }
}

TEST_CASE("flip-flop: mean reads, distances and marginals as computed and as published") {
  struct Row {
    FlipFlopSet set;
    int count;
    double reads, distance, distance_bound;
  };
  // reads: 1 + 254 (1-p)/2. Its bound is five standard errors of a binomial; that of the distance is from repeated
  // simulation.
  for (const Row& row : {Row{training_set, 3000, 26.4, 19, 0.6}, Row{in_distribution_set, 3000, 26.4, 19, 0.6},
           Row{sparse_set, 6000, 3.54, 144, 6}, Row{dense_set, 500, 115.3, 4.4, 0.1}}) {
    CAPTURE(row.set.name);
    const Statistics found = measure(row.set, row.count);
    const double p = row.set.p_ignore, read = (1 - p) / 2, pairs = 254.0 * row.count;
    CHECK(std::abs(found.mean_reads - (1 + 254 * read)) < 5 * std::sqrt(254 * read * (1 - read) / row.count));
    CHECK(std::abs(found.mean_reads - row.reads) < 0.1 + 5 * std::sqrt(254 * read * (1 - read) / row.count));
    CHECK(std::abs(found.mean_distance - row.distance) < row.distance_bound);
    CHECK(std::abs(found.ignores - p) < 5 * std::sqrt(p * (1 - p) / pairs));
    CHECK(std::abs(found.ones - 0.5) < 0.01);
  }
}

TEST_CASE("flip-flop: p_ignore at its ends") {
  const std::string never = text(sample({512, 0.0}, Stream(1, "x")));
  CHECK(never.find('i') == std::string::npos);
  const std::string nearly_always = text(sample({64, 0.9999999}, Stream(1, "x")));
  CHECK(nearly_always.find('w', 1) == std::string::npos);
  CHECK(nearly_always[62] == 'r');
}

TEST_CASE("flip-flop: a sequence is a function of seed, set and index alone") {
  const FlipFlopBatch whole = flip_flop_batch(training_set, 32, 5, 100, 6, Targets::clean);
  const FlipFlopBatch front = flip_flop_batch(training_set, 32, 5, 100, 2, Targets::clean);
  const FlipFlopBatch back = flip_flop_batch(training_set, 32, 5, 102, 4, Targets::clean);
  Tokens inputs = front.inputs, targets = front.targets;
  inputs.insert(inputs.end(), back.inputs.begin(), back.inputs.end());
  targets.insert(targets.end(), back.targets.begin(), back.targets.end());
  CHECK(whole.inputs == inputs);
  CHECK(whole.targets == targets);
  CHECK(whole.inputs != flip_flop_batch(training_set, 32, 6, 100, 6, Targets::clean).inputs);
  CHECK(whole.inputs != flip_flop_batch(in_distribution_set, 32, 5, 100, 6, Targets::clean).inputs);
}

TEST_CASE("flip-flop: training and test sets share no string") {
  std::set<std::string> seen;
  for (const FlipFlopSet& set : {training_set, in_distribution_set, sparse_set, dense_set}) {
    for (std::uint64_t index = 0; index < 300; ++index)
      seen.insert(text(sample({512, set.p_ignore}, Stream(0, set.purpose, index))));
  }
  CHECK(seen.size() == 1200);
}

TEST_CASE("flip-flop: targets are the next tokens, only behind r in clean mode") {
  const FlipFlopBatch clean = flip_flop_batch(dense_set, 20, 3, 0, 4, Targets::clean);
  const FlipFlopBatch all = flip_flop_batch(dense_set, 20, 3, 0, 4, Targets::all);
  CHECK(clean.sequences == 4);
  CHECK(clean.positions == 19);
  REQUIRE(clean.inputs.size() == 4 * 19);
  CHECK(clean.inputs == all.inputs);
  for (std::uint64_t row = 0; row < 4; ++row) {
    const Tokens tokens = sample({20, dense_set.p_ignore}, Stream(3, dense_set.purpose, row));
    for (std::size_t t = 0; t < 19; ++t) {
      const std::size_t at = row * 19 + t;
      CHECK(all.inputs[at] == tokens[t]);
      CHECK(all.targets[at] == tokens[t + 1]);
      CHECK(clean.targets[at] == (tokens[t] == read_token ? tokens[t + 1] : ignored_target));
    }
  }
}

TEST_CASE("flip-flop: errors are counted at r alone, per bit and per sequence, over batches") {
  ReadErrors errors;
  CHECK(std::isnan(errors.error_percent()));
  const FlipFlopBatch first = flip_flop_batch(dense_set, 40, 0, 0, 3, Targets::clean);
  const FlipFlopBatch second = flip_flop_batch(dense_set, 40, 0, 3, 2, Targets::all);
  errors.add(first, first.targets);  // right at every r, and -1 elsewhere, which must not count
  CHECK(errors.wrong_reads == 0);
  CHECK(errors.error_percent() == 0.0);
  Tokens predicted = second.targets;
  std::int64_t reads_of_second = 0;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    if (second.inputs[i] != read_token) {
      predicted[i] = -7;
      continue;
    }
    ++reads_of_second;
    // In the first sequence only: the wrong bit at its last r, which is the last position.
    if (i == 38) predicted[i] = predicted[i] == zero_token ? one_token : zero_token;
  }
  const std::int64_t reads_of_first = errors.reads;
  errors.add(second, predicted);
  CHECK(errors.reads == reads_of_first + reads_of_second);
  CHECK(errors.wrong_reads == 1);
  CHECK(errors.sequences == 5);
  CHECK(errors.wrong_sequences == 1);
  CHECK(errors.sequence_error_percent() == 20.0);
  CHECK(errors.error_percent() == doctest::Approx(100.0 / static_cast<double>(errors.reads)));
  // A sequence counts once, however many of its bits are wrong.
  ReadErrors all_wrong;
  all_wrong.add(first, Tokens(first.inputs.size(), write_token));
  CHECK(all_wrong.reads > 3);
  CHECK(all_wrong.wrong_reads == all_wrong.reads);
  CHECK(all_wrong.wrong_sequences == 3);
  predicted.pop_back();
  CHECK_THROWS_AS(errors.add(second, predicted), Error);
}

TEST_CASE("flip-flop: the most probable token, over the vocabulary or the bits") {
  const float missing = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits = {9, 1, 2, 3, 4, /**/ 0, 0, 0, 5, 5, /**/ 0, missing, 0, 1, 0};
  CHECK(most_probable(logits) == Tokens{write_token, zero_token, -1});
  CHECK(most_probable(logits, Answers::bits) == Tokens{one_token, zero_token, -1});
  CHECK_THROWS_AS((void)most_probable(std::vector<float>(7)), Error);
}

TEST_CASE("flip-flop: baselines on a string worked by hand, and in the large") {
  // w1 i0 r1 i0 r1: inputs are all but the last token; the reads are at positions 4 and 8.
  const Tokens tokens = parse("w1i0r1i0r1");
  FlipFlopBatch batch = {1, 9, Tokens(tokens.begin(), tokens.end() - 1), Tokens(tokens.begin() + 1, tokens.end())};
  const auto wrong = [&batch](Baseline baseline) {
    ReadErrors errors;
    errors.add(batch, predict(baseline, batch));
    return errors.wrong_reads;
  };
  CHECK(wrong(Baseline::always_zero) == 2);
  CHECK(wrong(Baseline::first_bit) == 0);
  CHECK(wrong(Baseline::last_bit_of_any_pair) == 2);
  CHECK(wrong(Baseline::most_frequent_bit) == 2);  // 1:1 and 2:2, a tie is 0
  // Nothing carries over from one sequence to the next: each starts its count anew.
  batch = {2, 3, {write_token, one_token, read_token, write_token, zero_token, read_token},
      {ignored_target, ignored_target, one_token, ignored_target, ignored_target, zero_token}};
  CHECK(wrong(Baseline::first_bit) == 0);
  CHECK(wrong(Baseline::most_frequent_bit) == 0);
  batch = {2, 3, {write_token, zero_token, read_token, write_token, one_token, read_token},
      {ignored_target, ignored_target, zero_token, ignored_target, ignored_target, one_token}};
  CHECK(wrong(Baseline::first_bit) == 0);
  CHECK(wrong(Baseline::most_frequent_bit) == 0);
  // Bits are fair, so a constant guess is wrong half the time. The last bit of any pair is right when that pair is a w
  // or r and by luck when it is an i: error p/2, less a little because pair 0 is always w.
  ReadErrors constant, last;
  const FlipFlopBatch many = flip_flop_batch(in_distribution_set, 512, 11, 0, 800, Targets::clean);
  constant.add(many, predict(Baseline::always_zero, many));
  last.add(many, predict(Baseline::last_bit_of_any_pair, many));
  CHECK(std::abs(constant.error_percent() - 50) < 3);
  CHECK(std::abs(last.error_percent() - 40) < 2);
  for (const Baseline baseline : baselines) CHECK_FALSE(name(baseline).empty());
}

TEST_CASE("flip-flop: lengths and probabilities that make no string are refused") {
  CHECK_THROWS_WITH_AS(check({7, 0.8}),
      "flip-flop: length 7 given; an even number, at least 4, required; each instruction has one bit", InputError);
  for (const int length : {-4, 0, 2, 3, 511}) CHECK_THROWS_AS((void)sample({length, 0.8}, Stream()), InputError);
  CHECK_NOTHROW(check({4, 0.0}));
  for (const double p : {-0.1, 1.0, 2.0, std::numeric_limits<double>::quiet_NaN()})
    CHECK_THROWS_AS(check({8, p}), InputError);
  CHECK_THROWS_AS((void)flip_flop_batch(training_set, 8, 0, 0, 0, Targets::clean), InputError);
}
