// The grids of a laboratory: one run of `train` for each task, place in the grid and seed. Each is a process of its own
// in its own folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "examples/whence/lab/axes.h"
#include "examples/whence/run/training.h"

namespace whence {

// One trained and tested model.
struct GridCell {
  std::string scheme;  // canonical, with what axes of schemes set in it
  int seed = 0;
  // By axis, "scheme" (as --schemes has it) and "seed"; "-": not in this scheme.
  std::map<std::string, std::string> place;
  Settings options;                       // of train, besides scheme and seed
  Settings values;                        // of every option of train but the seed
  std::int64_t steps = 0, sequences = 0;  // of training, and in one step
  std::string data;                       // SHA-256 of what it reads, as run.json has it; empty: no file
  // Of its task, which it is tested on; empty: of text, which says itself how long it is.
  std::vector<std::string> sets;
  std::filesystem::path folder;

  std::string failure;   // why there are no results; empty: there are
  bool missing = false;  // that is why: it has not been run to its end
  std::vector<LossPoint> curve, validation;
  std::vector<LossPoint> validation_error;  // of tasks: tokens that are wrong, in percent
  double seconds = 0;                       // of training
  double seconds_in_all = 0;                // with its tests, as the times of its files have them
  struct Score {
    std::map<std::string, double> measures;  // "token error %", "sequence error %"; "perplexity", "bits per byte"
    std::map<std::string, double> guesses;   // percent of the task's metric
  };
  std::vector<std::pair<std::string, Score>> scores;  // by test set, or by length of text
};

// One task's runs, seed after seed.
struct Grid {
  std::string task;               // or lm
  std::vector<std::string> axes;  // besides scheme and seed
  std::vector<GridCell> cells;    // not empty
  std::filesystem::path folder;
};

}  // namespace whence
