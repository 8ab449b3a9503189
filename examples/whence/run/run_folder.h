// The files of one training run: checkpoints, logs, the weights at the end and at the best
// validation. Without a folder: none.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "examples/whence/cli/json_lines.h"
#include "examples/whence/run/tensorboard.h"
#include "nn/io/checkpoint.h"
#include "nn/io/json.h"

namespace whence {

class RunFolder {
 public:
  using Facts = std::map<std::string, std::string>;

  // `weights`: what is saved and loaded, in f32. `description`: what a run must share with the one that it continues.
  // An empty folder name: nothing is written or read. `keep`: of the newest checkpoints; 0: all.
  RunFolder(std::filesystem::path folder, std::vector<Module::Parameter> weights, Facts description, std::uint64_t seed,
      std::int64_t keep);

  // Where to go on, with the weights and the optimiser as they were then; step 0 for a new run. Removes temporary files
  // of runs that were killed. InputError when the folder holds a run and resume is off, or none and it is on;
  // DoesNotFit when it holds another run's; FileError when the checkpoint is damaged, unless that is accepted.
  TrainingState open(bool resume, bool tensorboard, Adam& optimizer, bool accept_damaged = false);

  // A checkpoint, unless this step has one. `facts` go with it.
  void save(std::int64_t step, std::int64_t skipped, const Adam& optimizer, const Facts& facts);
  void log(const Json& record);       // its numbers also as scalars for TensorBoard, if wanted
  void log_look(const Json& record);  // into looks.jsonl, which begins with the first
  void write_csv_of_log() const;      // metrics.csv, for spreadsheets
  void write(const std::string& name, const std::string& text) const;
  void save_weights(const std::string& name) const;
  void load_weights(const std::string& name, bool accept_damaged = false) const;

 private:
  void require_same_run(const TrainingState& saved, const std::string& checkpoint) const;

  std::filesystem::path folder_;
  std::vector<Module::Parameter> weights_;
  Facts description_;
  std::uint64_t seed_;
  std::int64_t keep_;
  std::unique_ptr<CheckpointFolder> checkpoints_;  // holds the lock of the folder for as long as the run
  std::unique_ptr<JsonLog> log_, looks_;
  std::unique_ptr<TensorBoardLog> tensorboard_;
  std::int64_t saved_ = -1;
};

}  // namespace whence
