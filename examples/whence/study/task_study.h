// A task (examples/whence/tasks/task.h) as a study: sequences drawn or read, tests beside guesses and the paper's figures.
#pragma once

#include "examples/whence/run/run_record.h"
#include "examples/whence/study/model_choice.h"
#include "examples/whence/study/study.h"
#include "examples/whence/tasks/dump.h"
#include "examples/whence/tasks/task_training.h"

namespace whence {

class TaskStudy final : public Study {
 public:
  explicit TaskStudy(tasks::TaskInfo info) : info_(std::move(info)) {}
  // Of a task that is made already. REQUIRES: it outlives the study.
  TaskStudy(const tasks::Task& task, const tasks::RunSizes& sizes);

  [[nodiscard]] const tasks::Task& task() const { return *task_; }
  [[nodiscard]] const tasks::RunSizes& run_sizes() const { return sizes_; }

  [[nodiscard]] std::string name() const override { return info_.name; }
  [[nodiscard]] std::string title() const override { return info_.title + " (" + info_.paper + ")"; }
  [[nodiscard]] std::vector<Sizes> sizes() const override { return {{"mini", info_.mini}, {"paper", ""}}; }
  void declare(CommandLine& line) override;
  [[nodiscard]] TrainingOptions training() const override;
  void settle(const CommandLine& line, const TrainingOptions& training) override;
  [[nodiscard]] bool shows_data(std::uint64_t seed) const override;
  [[nodiscard]] TransformerOptions model() const override { return task_->model(); }
  [[nodiscard]] TrainingBatch batch(std::uint64_t seed, std::int64_t part) const override;
  [[nodiscard]] TrainingBatch sample(std::uint64_t seed) const override;
  [[nodiscard]] Validation validate(const Transformer& model, std::uint64_t seed) const override;
  [[nodiscard]] Reading largest_reading(std::uint64_t seed) const override;
  [[nodiscard]] std::vector<std::string> notes(Transformer& model, const TrainingOptions& training) const override;
  std::vector<std::string> test(
      const Transformer& model, const TrainingResult& trained, const TrainingOptions& training) const override;
  [[nodiscard]] std::string data(std::uint64_t seed) const override { return tasks::data_fingerprint(*task_, seed); }
  [[nodiscard]] Facts facts(const TrainingOptions& training) const override;
  [[nodiscard]] Facts record_facts(const Transformer& model, std::uint64_t seed) const override;

 private:
  tasks::TaskInfo info_;
  std::function<std::unique_ptr<tasks::Task>()> make_;  // owns the values of the task's options
  std::shared_ptr<const tasks::Task> task_;
  tasks::RunSizes sizes_;
  tasks::DumpOptions dump_;
};

// What `train TASK` recorded: its task, the model that it trained, and the seed of its data. InputError when this
// version knows no such task, or not its options, or when files that the task read then are others now.
struct RecordedTask {
  std::unique_ptr<tasks::Task> task;
  TransformerOptions model;
  std::uint64_t seed = 0;
};
[[nodiscard]] RecordedTask recorded_task(const RunRecord& record);

}  // namespace whence
