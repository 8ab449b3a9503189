// What a person asks of a laboratory, read from a command line into grids: for `lab`, and for what runs its grids.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "examples/whence/cli/command_line.h"
#include "examples/whence/lab/plan.h"

namespace whence {

struct GridOptions {
  std::vector<std::string> tasks, vary;
  std::string schemes, preset = "mini", set;  // no schemes: those that the task's paper compares
  int seeds = 3;
  bool same_tokens = false;
};

// TASK... and the options under "Grid". Both arguments must outlive the parsing and plan_grids().
void declare_grid_options(CommandLine& line, GridOptions& options);

// "chomsky" stands for all fifteen tasks of the hierarchy. InputError when no task is given, or lm beside tasks.
[[nodiscard]] std::vector<std::string> tasks_of(const std::vector<std::string>& names);

// What `train TASK` says to the words behind it (examples/whence/train.h).
using TrainCheck = std::function<Settings(const std::string& task, const std::vector<std::string>& words)>;

struct PlannedGrids {
  std::vector<Axis> axes;  // of all of them
  std::vector<GridRequest> requests;
  std::vector<Grid> grids;  // one for each request
};
// What was parsed, with `more` in place of what --set and the preset say. A single task's grid lies in `folder`, those
// of several in folders of their own inside it. InputError as plan_grid() has it; nothing is run and nothing written.
[[nodiscard]] PlannedGrids plan_grids(const CommandLine& line, const GridOptions& options, const Settings& more,
    const std::filesystem::path& folder, const TrainCheck& check);

// What a laboratory does with a grid, by default all of it, beside other workers.
struct WorkOptions {
  bool plan = false, collect = false, submit = false;
  std::string slurm;
  double dead_after = 60;  // seconds
  std::int64_t cell = -1;  // this one alone; -1: all
};
void declare_work(CommandLine& line, WorkOptions& options);

// This machine, whose threads are shared by `jobs` runs at a time, or by as many as there are.
[[nodiscard]] Machine machine_for(
    const std::vector<Grid>& grids, int jobs, const std::string& device, bool quiet, bool accept_damaged);
// --accept-damaged: Machine::accept_damaged.
void declare_damaged(CommandLine& line, bool* accept);

// Says on standard error which runs failed; the exit code: 1 where one did. Damaged ones were accepted,
// and missing ones asked for.
[[nodiscard]] int say_failures(const std::vector<Grid>& grids, const std::string& command);

}  // namespace whence
