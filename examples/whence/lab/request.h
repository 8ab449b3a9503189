// What a person asks of `lab` about its grids, read from a command line.
#pragma once

#include <filesystem>
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

// TASK... and the options under "Grid". Both arguments must outlive the parsing.
void declare_grid_options(CommandLine& line, GridOptions& options);

// A request for each task; "chomsky" stands for all fifteen of the hierarchy. A single task's grid lies in `folder`,
// those of several in folders of their own inside it. InputError when no task is given, or lm beside tasks.
[[nodiscard]] std::vector<GridRequest> requests_of(
    const CommandLine& line, const GridOptions& options, const std::filesystem::path& folder);

// The options of train that make a task, or lm, small: minutes on a laptop, and the papers' findings can show.
[[nodiscard]] Settings mini_of(const std::string& task);

// Options of --set in the place of others. InputError where an axis has one of them, but of a length whose batch follows.
void put_settings(GridRequest& request, const Settings& given);

}  // namespace whence
