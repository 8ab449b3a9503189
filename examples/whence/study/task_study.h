// A task (examples/whence/tasks/task.h) as a study: sequences drawn or read, tests next to guesses and the paper's figures.
#pragma once

#include <algorithm>

#include "examples/whence/run/run_record.h"
#include "examples/whence/study/study.h"
#include "examples/whence/tasks/task.h"

namespace whence {

struct RunSizes {
  std::int64_t batch = 16;             // sequences per part of a step, and per pass in tests
  std::int64_t test_sequences = 1000;  // per test set, if it has so many
  std::int64_t validation_sequences = 256;
};

struct SetScore {
  tasks::TestSet set;
  tasks::Errors model = {};
  std::vector<std::pair<std::string, tasks::Errors>> guesses = {};
  std::string refused = {};  // the model's reason for refusing this set, which then has no errors
};

// The targets of token_loss().
[[nodiscard]] TrainingBatch batch_of(const tasks::Batch& batch);

class TaskStudy final : public Study {
 public:
  TaskStudy(std::shared_ptr<const tasks::Task> task, const RunSizes& sizes) : task_(std::move(task)), sizes_(sizes) {}
  // REQUIRES: the task outlives the study.
  TaskStudy(const tasks::Task& task, const RunSizes& sizes)
      : TaskStudy({std::shared_ptr<const tasks::Task>(), &task}, sizes) {}

  // Tests every set, in batches. Interrupted on request.
  [[nodiscard]] std::vector<SetScore> set_scores(const Transformer& model, std::uint64_t seed, bool quiet) const;

  [[nodiscard]] std::string summary(std::uint64_t seed) const override;
  [[nodiscard]] TrainingBatch batch(std::uint64_t seed, std::int64_t part) const override;
  // Validates on sequences like those of the first test set, but in no test set.
  [[nodiscard]] Validation validate(const Transformer& model, std::uint64_t seed) const override;
  [[nodiscard]] PlannedPass largest_pass(std::uint64_t seed) const override;
  void require_a_test(const Transformer& model, std::uint64_t seed) const override;
  std::vector<std::string> test(
      const Transformer& model, const TrainingResult& trained, const TrainingOptions& training) const override;
  [[nodiscard]] Json tests() const override;
  [[nodiscard]] std::string data(std::uint64_t seed) const override;
  [[nodiscard]] Facts facts(const TrainingOptions& training) const override;
  [[nodiscard]] Facts record_facts(const Transformer& model, std::uint64_t seed) const override;

 private:
  [[nodiscard]] std::int64_t tested(const tasks::TestSet& set) const {
    return std::min(sizes_.test_sequences, set.sequences);
  }

  std::shared_ptr<const tasks::Task> task_;
  RunSizes sizes_;
};

// Returns the SHA-256 of the first training batches, the first test sequences, and the files that the task read.
[[nodiscard]] std::string data_fingerprint(const tasks::Task& task, std::uint64_t seed);

// Returns the task's main figure of these errors, and the best of the guesses' figures.
[[nodiscard]] double headline(const tasks::Task& task, const tasks::Errors& errors);
[[nodiscard]] double best_guess(const tasks::Task& task, const SetScore& score);

// Reads what `train TASK` recorded: its task, the trained model, and the seed of its data. InputError when this version
// lacks the task or an option, or when files that the task read have changed.
struct RecordedTask {
  std::unique_ptr<tasks::Task> task;
  TransformerOptions model;
  std::uint64_t seed = 0;
};
[[nodiscard]] RecordedTask recorded_task(const RunRecord& record);

}  // namespace whence
