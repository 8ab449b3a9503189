// A transformer trained and tested on any task: what `train` and the laboratory share.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "examples/app/training.h"
#include "examples/tasks/task.h"

namespace whence::tasks {

// What of a task's model may be chosen; the rest is the task's.
struct ModelChoice {
  std::string scheme, activation, executor;
  std::int64_t dim = 0, layers = 0, heads = 0;
  double dropout = 0;
};
[[nodiscard]] ModelChoice choice_of(const TransformerOptions& model);
// A dropout of patterns and hidden numbers follows where the model has one, and so does a width of the MLP that is not
// 4 dim.
[[nodiscard]] TransformerOptions with(const TransformerOptions& model, const ModelChoice& choice);

struct RunSizes {
  std::int64_t batch = 16;             // sequences per part of a step, and at once in tests
  std::int64_t test_sequences = 1000;  // per test set
  std::int64_t validation_sequences = 256;
};

// Training on the task, with validation on sequences like those of the first test set that are in no test set.
// REQUIRES: `model` and `task` outlive the job.
[[nodiscard]] TrainingJob training_job(
    Transformer& model, const Task& task, const RunSizes& sizes, const TrainingOptions& training);
// What a resumed run must share: model, task, training, and the data themselves.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> description(
    const ModelChoice& choice, const Task& task, const RunSizes& sizes, const TrainingOptions& training);
// SHA-256 of the first training batches and of the beginnings of the test sets.
[[nodiscard]] std::string data_fingerprint(const Task& task, std::uint64_t seed);

struct SetScore {
  TestSet set;
  Errors model;
  std::vector<std::pair<std::string, Errors>> guesses;
};
// Every test set, in batches. Throws Interrupted when asked to stop.
[[nodiscard]] std::vector<SetScore> test_task(
    const Transformer& model, const Task& task, const RunSizes& sizes, std::uint64_t seed, bool quiet);

// The task's headline number of these errors, and the best of the guesses'.
[[nodiscard]] double headline(const Task& task, const Errors& errors);
[[nodiscard]] double best_guess(const Task& task, const SetScore& score);

// "6.8 (6.9)": what the paper printed for the scheme, or "-". Options of schemes are not compared.
[[nodiscard]] std::string figure_for(const std::vector<PaperFigure>& figures, const std::string& scheme);

}  // namespace whence::tasks
