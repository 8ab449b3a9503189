// The grids of a laboratory: what is asked, and the runs of `train` that it makes, one for each place in the grid and
// each seed. Each is a process of its own in its own folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "examples/whence/lab/axes.h"
#include "examples/whence/run/training.h"
#include "examples/whence/tasks/task.h"

namespace whence {

// What a run left.
struct RunFigures {
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

// One trained and tested model.
struct GridCell {
  std::string task;    // or lm
  std::string scheme;  // canonical, with what axes of schemes set in it
  std::string name;    // the scheme, and the options of train that vary: "cope, variables 3"
  int seed = 0;
  // By axis, "scheme" (as --schemes has it) and "seed"; "-": not in this scheme.
  std::map<std::string, std::string> place;
  Settings options;                       // of train, besides scheme and seed
  Settings values;                        // of every option of train
  std::int64_t steps = 0, sequences = 0;  // of training, and in one step
  std::string data;                       // SHA-256 of what it reads, as run.json has it; empty: no file
  // Of its task, which it is tested on; empty: of text, which says itself how long it is.
  std::vector<std::string> sets;
  std::filesystem::path folder;

  std::string failure;    // why there are no figures; empty: there are
  bool missing = false;   // that is why: it has not been run to its end
  bool log_lost = false;  // nothing but training anew can write its log again
  RunFigures figures;
};

// One task's runs.
struct Grid {
  std::string task;                  // or lm
  std::vector<std::string> schemes;  // canonical, no two the same
  int seeds = 3;
  std::vector<Axis> axes;
  std::string preset = "mini";  // sizes for a laptop; "paper": the paper's
  Settings set;                 // options of train in place of the preset's
  bool same_tokens = false;     // steps x batch x length of every cell is what preset and `set` say
  std::filesystem::path folder;

  // Once it is planned.
  Settings settings;            // of every run: the preset's, and `set`
  std::vector<GridCell> cells;  // seed after seed; not empty
};

// With its cells. Nothing is run and nothing written. InputError, naming the cell, when `train` would refuse one; when
// no scheme has an axis of schemes; when `set` has an axis, but a length whose batch follows; and when same_tokens asks
// for a batch that is no whole number.
[[nodiscard]] Grid planned(Grid grid);

// The task with those of the options that are its own; the others are the model's and the training's. InputError as of
// make_task().
[[nodiscard]] std::unique_ptr<tasks::Task> task_with(const std::string& name, const Settings& options);

// `train TASK ...` as the words behind the program that make the cell in its folder, or go on with it.
[[nodiscard]] std::vector<std::string> train_words(const GridCell& cell);

// A cell is done where its results are whole and of its options: then its figures are in it, and this is true. Else
// `missing` and `failure` say why. DoesNotFit where run.json is of other options or of another text.
[[nodiscard]] bool read_if_done(GridCell& cell);

// The newest training loss of a run that goes on; step 0 where there is none.
[[nodiscard]] LossPoint newest_loss(const GridCell& cell);

[[nodiscard]] std::string log_of(const GridCell& cell);  // the file of what its run says

}  // namespace whence
