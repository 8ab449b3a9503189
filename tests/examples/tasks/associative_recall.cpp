// Associative recall: the generator, longer test sets and guesses.
#include <doctest/doctest.h>
#include <cmath>
#include <set>

#include "examples/whence/tasks/task.h"
#include "tensor/error.h"

using namespace whence;
using namespace whence::tasks;

namespace {

Batch random_batch(index_t length, index_t vocabulary, const std::string& trigger, index_t sequences) {
  const auto task = make_task("associative_recall",
      {"--length", std::to_string(length), "--vocabulary", std::to_string(vocabulary), "--trigger", trigger});
  return task->training_batch(6, 1, sequences);
}

}  // namespace

TEST_CASE("associative recall: the last token was seen once before, the target is what followed it") {
  for (const std::string trigger : {"anywhere", "first"}) {
    const Batch batch = random_batch(12, 20, trigger, 3000);
    std::vector<int> places(12), answers(20);
    for (index_t row = 0; row < batch.sequences; ++row) {
      const auto begin = batch.inputs.begin() + row * 12;
      const std::set<std::int64_t> different(begin, begin + 11);
      CHECK(different.size() == 11);
      const auto seen = std::find(begin, begin + 11, begin[11]) - begin;
      REQUIRE(seen < 10);  // a token other than the trigger follows it
      CHECK(batch.targets[static_cast<std::size_t>(row * 12 + 11)] == begin[seen + 1]);
      for (index_t i = 0; i < 11; ++i) CHECK(batch.targets[static_cast<std::size_t>(row * 12 + i)] == no_target);
      ++places[static_cast<std::size_t>(seen)], ++answers[static_cast<std::size_t>(begin[seen + 1])];
    }
    if (trigger == "first") CHECK(places[0] == 3000);
    for (std::size_t place = 0; place < 10 && trigger == "anywhere"; ++place)
      CHECK(std::abs(places[place] - 300) < 5 * std::sqrt(300));
    for (const int seen : answers) CHECK(std::abs(seen - 150) < 5 * std::sqrt(150));
  }
}

TEST_CASE("associative recall: longer test sets where the vocabulary suffices, and guesses") {
  CHECK(make_task("associative_recall", {"--length", "16", "--vocabulary", "32"})->test_sets().size() == 2);
  const auto task = make_task("associative_recall", {"--length", "16", "--trigger", "first"});
  CHECK(task->test_sets().size() == 3);
  CHECK(task->test_batch(2, 0, 0, 2).positions == 64);
  CHECK_THROWS_WITH_AS((void)make_task("associative_recall", {"--length", "16", "--vocabulary", "14"}),
      doctest::Contains("least --length - 1"), InputError);
  const Batch batch = task->test_batch(1, 0, 0, 50);
  Errors second, before;
  second.add(batch, task->guesses()[0].predict(batch));
  before.add(batch, task->guesses()[1].predict(batch));
  CHECK(second.token_percent() == 0.0);  // with the trigger always first, the second token is the answer
  CHECK(before.token_percent() == 100.0);
}
