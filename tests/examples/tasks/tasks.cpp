// The tasks' common parts, selective copy and counting: supports, marginals, and every label computed in another way.
#include <doctest/doctest.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "examples/whence/look/subject.h"
#include "examples/whence/tasks/chomsky.h"
#include "tensor/error.h"

using namespace whence;
using namespace whence::tasks;

namespace {

std::string text_of(const Task& task, const Tokens& tokens) {
  std::string text;
  for (const std::int64_t token : tokens) text += token == no_target ? "." : task.text(token);
  return text;
}

// Checks that the part has the whole's rows from `first` on, up to the filling of the longer one; also for guesses.
void check_part(const Batch& whole, index_t first, const Batch& part, const std::vector<Guess>& guesses) {
  const auto same = [](Tokens x, Tokens y, std::int64_t filler) {
    const std::size_t longest = std::max(x.size(), y.size());
    x.resize(longest, filler), y.resize(longest, filler);
    CHECK(x == y);
  };
  for (index_t number = 0; number < part.sequences; ++number) {
    const Row a = whole.row(first + number), b = part.row(number);
    same(a.inputs, b.inputs, 0);
    same(a.targets, b.targets, no_target);
    same(a.graded, b.graded, no_target);
  }
  for (const Guess& guess : guesses) {
    const Tokens of_whole = guess.predict(whole), of_part = guess.predict(part);
    for (index_t number = 0; number < part.sequences; ++number)
      CHECK(std::equal(of_part.begin() + number * part.positions,
          of_part.begin() + number * part.positions + std::min(part.positions, whole.positions),
          of_whole.begin() + (first + number) * whole.positions));
  }
}

struct Small {
  std::string name;
  std::vector<std::string> options;
};
const std::vector<Small> small_tasks{{"flip_flop", {"--length", "20"}},
    {"flip_flop", {"--length", "20", "--targets", "all"}}, {"selective_copy", {"--tokens", "5", "--blanks", "6"}},
    {"selective_copy", {"--tokens", "5", "--blanks", "6", "--format", "separator"}},
    {"selective_copy", {"--tokens", "5", "--blanks", "6", "--format", "markers"}},
    {"counting", {"--operations", "40", "--variables", "3"}},
    {"counting", {"--operations", "40", "--block", "20", "--training-set", "10"}}};

}  // namespace

TEST_CASE("tasks: sequences depend on the seed, the set and their number, not on how they are cut") {
  std::vector<Small> all_tasks = small_tasks;
  for (const ChomskyProblem& problem : chomsky_problems())
    all_tasks.push_back({problem.name, {"--test-from", "30", "--test-to", "45", "--test-every", "15"}});
  for (const Small& small : all_tasks) {
    CAPTURE(small.name);
    const auto task = make_task(small.name, small.options);
    const std::vector<Guess> guesses = task->guesses();
    const bool one_length = small.options[0] == "--test-from";  // in a step; a step of strings that are many
    std::int64_t step = 1;
    while (one_length && task->training_batch(3, step, 1).positions < task->test_batch(0, 3, 0, 1).positions) ++step;
    const Batch whole = task->training_batch(3, step, 6);
    check_part(whole, 0, task->training_batch(3, step, 6), guesses);
    check_part(whole, one_length ? 0 : 3, task->training_batch(3, one_length ? step : 2, 3), guesses);
    CHECK(task->training_batch(3, step + 1, 6).inputs != whole.inputs);
    CHECK(task->training_batch(4, step, 6).inputs != whole.inputs);
    std::set<Tokens> seen{whole.inputs};
    for (std::size_t set = 0; set < task->test_sets().size(); ++set) {
      const Batch all = task->test_batch(set, 3, 0, 9);
      for (const index_t first : {0, 4})
        check_part(all, first, task->test_batch(set, 3, first, 4 + first / 4), guesses);
      CHECK(seen.insert(all.inputs).second);
      CHECK(seen.insert(task->test_batch(set, 4, 0, 9).inputs).second);
      CHECK(seen.insert(task->test_batch(set, 3, 9, 9).inputs).second);
    }
  }
}

TEST_CASE("tasks: every answer has a name of its own, which look shows") {
  for (const TaskInfo& info : registered_tasks()) {
    CAPTURE(info.name);
    const auto task = make_task(info.name);
    const TransformerOptions model = task->model();
    const index_t answers = model.outputs ? model.outputs : model.vocabulary;
    std::set<std::string> names;
    for (index_t answer = 0; answer < answers; ++answer) names.insert(task->answer_text(answer));
    CHECK(static_cast<index_t>(names.size()) == answers);
    if (model.outputs == 0) continue;
    std::set<std::string> shown;
    for (std::int64_t sample = 0; sample < 60; ++sample)
      for (const auto& answer : look::task_subject(nullptr, *task, 1, sample).answers)
        if (answer) shown.insert(*answer);
    CHECK(shown == names);
  }
}

TEST_CASE("tasks: errors per token and per sequence, over batches, where something is graded") {
  const Batch batch{.sequences = 3,
      .positions = 2,
      .inputs = {0, 0, 0, 0, 0, 0},
      .targets = {1, 2, 3, 4, 5, 6},
      .graded = {1, 2, -1, 4, -1, -1}};
  Errors errors;
  CHECK(std::isnan(errors.token_percent()));
  errors.add(batch, {1, 2, 9, 4, 9, 9});
  CHECK(errors.tokens == 3);
  CHECK(errors.sequences == 2);  // the third has nothing to grade
  CHECK(errors.token_percent() == 0.0);
  errors.add(batch, {0, 0, 3, 4, 5, 6});
  CHECK(errors.wrong_tokens == 2);
  CHECK(errors.wrong_sequences == 1);
  CHECK(errors.sequence_percent() == 25.0);
  CHECK_THROWS_WITH_AS(errors.add(batch, {1, 2, 3}), doctest::Contains("3 predictions given; 6"), Error);
}

TEST_CASE("tasks: the most probable token of each row") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor logits = Tensor::of({9, 1, 2, /**/ 0, 5, 5, /**/ 0, nan, 1, /**/ 3, -1, -2}, {2, 2, 3});
  CHECK(most_probable(logits) == Tokens{0, 1, -1, 0});
}

TEST_CASE("tasks: selective copy in its three formats, the answer read off the text") {
  for (const std::string format : {"plain", "separator", "markers"}) {
    const auto task = make_task("selective_copy", {"--tokens", "7", "--blanks", "9", "--format", format});
    const std::int64_t blanks[] = {9, 4, 18};  // dense and sparse: half, and twice
    for (std::size_t set = 0; set < 3; ++set) {
      const Batch batch = task->test_batch(set, 2, 0, 200);
      for (index_t row = 0; row < batch.sequences; ++row) {
        const std::string text = text_of(*task, batch.row(row).inputs);
        const std::string context = text.substr(0, 7 + static_cast<std::size_t>(blanks[set]));
        CHECK(std::count(context.begin(), context.end(), '_') == blanks[set]);
        std::string answer = context;
        std::erase(answer, '_');
        const std::string rest = text.substr(context.size()), targets = text_of(*task, batch.row(row).targets);
        CHECK(targets.substr(targets.size() - 7) == answer);
        CHECK(targets.substr(0, targets.size() - 7) == std::string(targets.size() - 7, '.'));
        if (format == "plain") CHECK(rest == answer.substr(0, 6));
        if (format == "separator") CHECK(rest == "|" + answer.substr(0, 6));
        if (format == "markers") CHECK(rest == "???????");
      }
    }
  }
}

TEST_CASE("tasks: selective copy: symbols are uniform, and so are the places of blanks and the pairs of places") {
  const auto task = make_task("selective_copy", {"--tokens", "3", "--blanks", "4"});
  constexpr int count = 7000;
  const Batch batch = task->training_batch(1, 1, count);
  std::map<char, int> symbols;
  std::map<std::string, int> patterns;
  for (index_t row = 0; row < count; ++row) {
    std::string context = text_of(*task, batch.row(row).inputs).substr(0, 7);
    for (char& c : context)
      if (c != '_') ++symbols[c], c = 'x';
    ++patterns[context];
  }
  CHECK((symbols.size() == 15 && symbols.begin()->first == 'a'));
  for (const auto& [symbol, seen] : symbols) CHECK(std::abs(seen - count * 3 / 15.0) < 5 * std::sqrt(count * 3 / 15.0));
  // 7 choose 3, each as likely as the others: chi^2 of 34 degrees of freedom is below 80 but once in 10^5.
  CHECK(patterns.size() == 35);
  double chi = 0;
  for (const auto& [pattern, seen] : patterns) chi += (seen - 200.0) * (seen - 200.0) / 200.0;
  CHECK(chi < 80);
}

namespace {

// Runs the program's text. Returns the value of the queried variable, or nothing if the text does not set it.
std::optional<int> interpret(const std::string& text) {
  std::istringstream words(text);
  std::map<std::string, int> values;
  std::string word, next;
  while (words >> word) {
    if (word == "pass;") continue;
    words >> next;
    if (word == "print") return values.contains(next) ? std::optional(values.at(next)) : std::nullopt;
    if (next == "=") {
      words >> values[word] >> next;
      REQUIRE(next == ";");
    } else {
      REQUIRE(next == "++;");
      if (values.contains(word)) ++values.at(word);
    }
  }
  FAIL("no question in ", text);
  return {};
}

std::string without_padding(const std::string& text) { return text.substr(0, text.find("<pad>")); }

int target_of(const Task& task, const Tokens& targets) {
  int value = -1;
  for (const std::int64_t token : targets) {
    if (token == no_target) continue;
    REQUIRE(value == -1);
    value = std::stoi(task.text(token));
  }
  return value;
}

}  // namespace

TEST_CASE("tasks: counting: every answer by running the program's text, the question last, padding behind it") {
  for (const char* variables : {"1", "3", "5"}) {
    const auto task = make_task("counting", {"--variables", variables, "--block", "0"});
    CHECK(task->model().vocabulary == 18 + std::stoi(variables));
    for (std::size_t set = 0; set < 3; ++set) {
      const Batch batch = task->test_batch(set, 2, 0, 60);
      for (index_t row = 0; row < batch.sequences; ++row) {
        const std::string text = without_padding(text_of(*task, batch.row(row).inputs));
        const Tokens targets = batch.row(row).targets;
        const auto expected = interpret(text);
        REQUIRE(expected);
        CHECK(*expected == target_of(*task, targets));
        CHECK(*expected <= 10);
        CHECK(text.substr(text.size() - 8, 6) == "print ");
        const auto last = static_cast<std::size_t>(std::count(text.begin(), text.end(), ' ')) - 1;
        CHECK(targets[last] != no_target);
      }
    }
  }
}

TEST_CASE("tasks: counting: lengths, and weights of the operations") {
  struct Row {
    std::size_t set;
    double weight;
  };
  CHECK_THROWS_AS((void)make_task("counting", {"--pass-weight", "0"}), InputError);  // twice and a fifth are equal
  const auto task = make_task("counting", {"--block", "0"});
  for (const Row& expected : {Row{0, 50}, Row{1, 100}, Row{2, 10}}) {
    double passes = 0, sets = 0;
    int shortest = 1 << 30, longest = 0;
    const Batch batch = task->test_batch(expected.set, 9, 0, 1500);
    for (index_t row = 0; row < 1500; ++row) {
      const Tokens inputs = batch.row(row).inputs;
      const auto steps = static_cast<int>(
          std::ranges::count_if(inputs, [](auto token) { return token == 2 || token == 3 || token == 5; }));
      // After the first set a pass is `weight` times as likely as a set, whatever increments are drawn again.
      const auto behind = std::find(inputs.begin(), inputs.end(), 3) + 1;
      passes += static_cast<double>(std::count(behind, inputs.end(), 2));
      sets += static_cast<double>(std::count(behind, inputs.end(), 3));
      shortest = std::min(shortest, steps), longest = std::max(longest, steps);
    }
    CHECK((shortest >= 3 && shortest < 20 && longest > 500 && longest <= 512));
    CHECK(std::abs(passes / sets - expected.weight) < 5 * expected.weight / std::sqrt(sets));
  }
}

TEST_CASE("tasks: counting: the block keeps the last tokens, the answer stays the whole program's") {
  const auto cut = make_task("counting"), whole = make_task("counting", {"--block", "0"});
  const Batch a = cut->test_batch(2, 4, 0, 200), b = whole->test_batch(2, 4, 0, 200);
  CHECK(a.positions == 511);
  int shortened = 0;
  for (index_t row = 0; row < 200; ++row) {
    const std::string kept = without_padding(text_of(*cut, a.row(row).inputs)),
                      all = without_padding(text_of(*whole, b.row(row).inputs));
    CHECK(all.ends_with(kept));
    shortened += kept != all;
    CHECK(target_of(*cut, a.row(row).targets) == target_of(*whole, b.row(row).targets));
  }
  CHECK(shortened > 50);
  const std::vector<std::string> notes = cut->notes(4);
  CHECK((notes.size() == 3 && notes[0].find("512 tokens cuts 1") != std::string::npos && whole->notes(4).empty()));
}

TEST_CASE("tasks: counting: a training set of fixed size is gone through once per epoch, in another order each time") {
  const auto task = make_task("counting", {"--operations", "30", "--training-set", "50"});
  const auto rows = [&](std::int64_t first_step) {
    std::multiset<std::string> texts;
    for (std::int64_t step = first_step; step < first_step + 5; ++step) {
      const Batch batch = task->training_batch(1, step, 10);
      for (index_t row = 0; row < 10; ++row) texts.insert(without_padding(text_of(*task, batch.row(row).inputs)));
    }
    return texts;
  };
  const auto first = rows(1), second = rows(6);
  CHECK(first == second);
  CHECK(first.size() == 50);
  CHECK(task->training_batch(1, 1, 10).inputs != task->training_batch(1, 6, 10).inputs);
}
