// What is trained for a table: the runs of its grids, in one pool that all tables share. Two tables that ask for the same
// task, scheme, seed and options train them once.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "examples/lab/grid.h"
#include "examples/lab/request.h"
#include "examples/papers/paper_table.h"

namespace whence::papers {

struct Asked {
  std::string preset = "mini", set, text, code;  // --set; the user's files, empty: none given
  std::vector<std::string> methods;              // those alone; empty: all of the preset
  int seeds = 0;                                 // 0: the preset's
  std::filesystem::path folder;                  // of the pool
};

struct Runs {
  std::vector<Grid> grids;            // one for each task
  std::vector<std::string> commands;  // as one would type it to `lab`
};

// InputError as `lab` has it, or when a text is needed and none was given. Nothing is trained and nothing written. `check`:
// checked_train_options (examples/train.h).
[[nodiscard]] Runs plan_runs(const PaperTable& table, const Asked& asked, const TrainCheck& check);

// Of all training steps of all runs, without tests; each pair of tokens counts, also those that a mask hides. `cost`:
// operations_per_sequence (examples/train.h).
using SequenceCost = std::function<double(const std::string& task, const std::vector<std::string>& words)>;
[[nodiscard]] double operations(const Runs& runs, const SequenceCost& cost);

[[nodiscard]] std::vector<std::string> tasks_at(const PaperTable& table, const Preset& preset);

// The words behind `lab`, without --seeds and without the user's text.
[[nodiscard]] std::vector<std::string> lab_words(
    const PaperTable& table, const Preset& preset, const std::string& task);

// As a shell takes them.
[[nodiscard]] std::string typed(const std::vector<std::string>& words);

}  // namespace whence::papers
