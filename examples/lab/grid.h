// The grids of a laboratory: one run of `train` for each task, scheme and seed. Each is a
// process of its own in its own folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "examples/app/training.h"

namespace whence {

// One task's runs.
struct GridOptions {
  std::string task;
  std::vector<std::string> schemes;        // canonical
  int seeds = 3;                           // 0, 1, ...
  std::vector<std::string> train_options;  // handed to every run of train
  std::int64_t steps = 0;                  // of each run, for the progress; part of train_options
  std::filesystem::path folder;
};

struct Machine {
  int jobs = 1;                   // runs at the same time
  int threads = 1;                // of each
  std::string device = "auto";    // as train's --device has it
  std::filesystem::path program;  // whence, whose `train` they are
  bool quiet = false;
};

// One trained and tested model.
struct GridCell {
  std::string scheme;
  int seed = 0;
  std::filesystem::path folder;
  std::vector<LossPoint> curve;
  double seconds = 0;  // of training
  struct Score {
    double token_error, sequence_error;     // percent
    std::map<std::string, double> guesses;  // percent of the task's metric
  };
  std::vector<std::pair<std::string, Score>> scores;  // by test set
};

// Trains what is missing, in the order of tasks, seeds and then schemes, and reads all results, grid by grid. A folder
// with part of the same grid is continued; one with another is refused (InputError). When asked to stop, the runs save
// and this throws Interrupted. A run that fails makes an Error that names its log.
[[nodiscard]] std::vector<std::vector<GridCell>> run_grids(
    const std::vector<GridOptions>& grids, const Machine& machine);

}  // namespace whence
