// A transformer trained and tested on any task: what `train` and the laboratory share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/run/training.h"
#include "examples/whence/tasks/task.h"

namespace whence::tasks {

struct RunSizes {
  std::int64_t batch = 16;             // sequences per part of a step, and at once in tests
  std::int64_t test_sequences = 1000;  // per test set, where it has as many
  std::int64_t validation_sequences = 256;
};
[[nodiscard]] inline std::int64_t tested(const TestSet& set, const RunSizes& sizes) {
  return std::min(sizes.test_sequences, set.sequences);
}

// Loss and errors on sequences like those of the first test set that are in no test set.
[[nodiscard]] Validation validate(
    const Transformer& model, const Task& task, const RunSizes& sizes, std::uint64_t seed);
// SHA-256 of the first training batches, of the beginnings of the test sets, and of the files that the task read.
[[nodiscard]] std::string data_fingerprint(const Task& task, std::uint64_t seed);

struct SetScore {
  TestSet set;
  Errors model;
  std::vector<std::pair<std::string, Errors>> guesses;
  std::string refused = {};  // the model's reason not to read this set; it has no errors then, right or wrong
};
struct TestPlan {
  std::size_t refused = 0;     // test sets that the model refuses: the longest ones
  std::string reason = {};     // its words
  std::int64_t sequences = 0;  // in all others
  double seconds = 0;          // that these will take on this machine, about
};
// Before training, with any weights. InputError when the model refuses every set.
[[nodiscard]] TestPlan plan_tests(
    const Transformer& model, const Task& task, const RunSizes& sizes, std::uint64_t seed);
// Every test set, in batches. Throws Interrupted when asked to stop.
[[nodiscard]] std::vector<SetScore> test_task(
    const Transformer& model, const Task& task, const RunSizes& sizes, std::uint64_t seed, bool quiet);

// The task's headline number of these errors, and the best of the guesses'.
[[nodiscard]] double headline(const Task& task, const Errors& errors);
[[nodiscard]] double best_guess(const Task& task, const SetScore& score);

}  // namespace whence::tasks
