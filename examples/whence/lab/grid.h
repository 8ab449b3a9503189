// The grids of a laboratory: one run of `train` for each task, place in the grid and seed. Each is a
// process of its own in its own folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "examples/whence/lab/axes.h"
#include "examples/whence/run/training.h"

namespace whence {

// One trained and tested model.
struct GridCell {
  std::string scheme;  // canonical, with what axes of schemes set in it
  int seed = 0;
  std::map<std::string, std::string>
      place;                              // by axis, "scheme" (as --schemes has it) and "seed"; "-": not in this scheme
  Settings options;                       // of train, besides scheme and seed
  std::int64_t steps = 0, sequences = 0;  // of training, and in one step
  std::string data;                       // SHA-256 of what it reads, as run.json has it; empty: no file
  std::vector<std::string>
      sets;  // of its task, which it is tested on; empty: of text, which says itself how long it is
  std::filesystem::path folder;

  std::string failure;   // why there are no results; empty: there are
  bool damaged = false;  // that is why: what it left is not what it wrote
  bool missing = false;  // or that: nobody has ended it yet
  std::vector<LossPoint> curve, validation;
  std::vector<LossPoint> validation_error;  // of tasks: tokens that are wrong, in percent
  double seconds = 0;                       // of training
  double processor_seconds = 0;             // of everything that it ran, over all threads
  std::string code;                         // code_hash() of the program that ended it
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

struct Machine {
  int jobs = 1;                   // runs at the same time
  int threads = 1;                // of each
  std::string device = "auto";    // as train's --device has it
  std::filesystem::path program;  // whence, whose `train` they are
  bool quiet = false;
  bool accept_damaged = false;  // runs whose results are damaged count as failed, with a warning
  double dead_after = 60;       // seconds without a sign of life of another worker, whose runs are then taken over
  std::optional<std::int64_t> only = {};  // of all cells of all grids, this one alone, from 0
};

// Trains what is missing, in the order of grids and their cells, and reads all results into the cells. Any number of
// processes, on any machines that share the folder, may call it at once: each cell is run by one of them
// (examples/whence/lab/claim.h), and it returns when all are done. A folder with
// part of the same grid is continued; one with another is refused (DoesNotFit), or with runs that no laboratory began
// (InputError). What finished runs left is believed only where it is what they wrote (examples/whence/lab/run_mark.h):
// FileError that lists all damaged ones, before anything is trained. A run that fails leaves its reason in its cell,
// the others go on, and the next call tries it again. When asked to stop, the runs save and this throws Interrupted.
// Runs die with this process, whatever ends it; those that die still are waited for.
void run_grids(std::vector<Grid>& grids, const Machine& machine);

// Reads what is done into the cells and runs nothing. Others are marked as missing, with who runs them. What runs left
// that were started by hand (planned_commands) is read strictly, and a note says that it is not proved.
void collect_grids(std::vector<Grid>& grids, const Machine& machine);

// `whence train ...` of each cell that is not done, for a shell; `program` as it is to be called. Begins the cells:
// runs by these lines are then taken for the grid's own.
[[nodiscard]] std::vector<std::string> planned_commands(
    std::vector<Grid>& grids, const Machine& machine, const std::string& program);

// The log of a cell's run.
[[nodiscard]] std::string log_of(const GridCell& cell);

}  // namespace whence
