// The files of one training run: checkpoints, logs, the weights at the end and at the best validation. Writes none if
// the options name no folder, or on ranks other than 0.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "examples/whence/cli/json_lines.h"
#include "examples/whence/run/training_options.h"
#include "nn/io/checkpoint.h"

namespace whence {

class RunFolder {
 public:
  using Facts = std::map<std::string, std::string>;

  // `weights`: saved and loaded in f32. `description`: the options that a run must share with the one that it continues.
  // REQUIRES: `options` outlive this.
  RunFolder(const TrainingOptions& options, std::vector<Module::Parameter> weights, Facts description)
      : options_(options), weights_(std::move(weights)), description_(std::move(description)) {}

  // Returns the state to continue from, with weights and optimiser restored; step 0 for a new run. Removes temporary
  // files of killed runs. InputError when the folder holds a run and resume is off, or none and it is on; DoesNotFit
  // when it holds another run; FileError when the checkpoint is damaged, unless that is accepted.
  TrainingState open(Optimizer& optimizer);

  // Writes a checkpoint with these `facts`, unless this step has one.
  void save(std::int64_t step, std::int64_t skipped, const Optimizer& optimizer, const Facts& facts);
  void log(const Json& record);
  void write_csv_of_log() const;  // metrics.csv, for spreadsheets
  void write(const std::string& name, const std::string& text) const;
  void save_weights(const std::string& name) const;
  void load_weights(const std::string& name) const;

 private:
  void require_same_run(const TrainingState& saved, const std::string& checkpoint) const;

  const TrainingOptions& options_;
  std::vector<Module::Parameter> weights_;
  Facts description_;
  std::optional<CheckpointFolder> checkpoints_;  // holds the folder's lock while the run lasts
  std::optional<JsonLog> log_;
  std::int64_t saved_ = -1;
};

}  // namespace whence
