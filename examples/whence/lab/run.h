// Runs of grids: all of them here, or as lines for other engines; and what is done of them, at any time.
#pragma once

#include <string>
#include <vector>

#include "examples/whence/lab/grid.h"

namespace whence {

struct Machine {
  int jobs = 1;                 // runs at the same time
  int threads = 0;              // of each; 0: as many as train takes by itself
  std::string device = "auto";  // as train's --device has it
  bool quiet = false;
};

// Runs what is not done, as many processes at a time as the machine says, and reads all results into the cells. A
// folder with part of the same grid is continued; one with another is refused (DoesNotFit), and so is one in which
// another laboratory runs (SystemError). A run that fails leaves its reason in its cell, the others go on, and the next
// call tries it again; one whose results are damaged is said and run again. When asked to stop, the runs save and this
// throws Interrupted.
void run_grids(std::vector<Grid>& grids, const Machine& machine);

// This machine, whose threads are shared by `jobs` runs at a time, or by as many as there are.
[[nodiscard]] Machine machine_for(const std::vector<Grid>& grids, int jobs, const std::string& device, bool quiet);

// Says on standard error which runs failed; the exit code: 1 where one did.
[[nodiscard]] int say_failures(const std::vector<Grid>& grids, const std::string& command);

// Reads what is done into the cells, and says on standard error what is missing. Nothing is run.
void collect_grids(std::vector<Grid>& grids);

// A line for a shell for each cell that is not done: `PROGRAM train ...`, which makes exactly that cell in its folder.
[[nodiscard]] std::vector<std::string> planned_lines(std::vector<Grid>& grids, const Machine& machine);

// The lines as an array of SLURM, a task for each. `options`: of sbatch, as "partition=gpu,time=2:00:00". InputError
// where one is no key=value, or is set by the script itself.
[[nodiscard]] std::string slurm_script(const std::vector<std::string>& lines, const std::string& options);

}  // namespace whence
