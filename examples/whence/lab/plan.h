// A grid before anything runs: its cells, each with its place, its options and its folder, all of them checked.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "examples/whence/lab/axes.h"
#include "examples/whence/lab/grid.h"
#include "examples/whence/tasks/task.h"

namespace whence {

// What `train TASK` says to the words behind it: every option's value, or InputError (examples/whence/study/train_request.h).
using TrainCheck = std::function<Settings(const std::string& task, const std::vector<std::string>& words)>;

struct GridRequest {
  std::string task;                  // or lm
  std::vector<std::string> schemes;  // canonical, no two the same
  int seeds = 3;
  std::vector<Axis> axes;
  Settings settings;         // of every run
  bool same_tokens = false;  // steps x batch x length of every cell is what `settings` say
  std::filesystem::path folder;
};

// Nothing is run and nothing written. InputError, naming the cell, when `train` would refuse one; when no scheme has an
// axis of schemes; and when same_tokens asks for a batch that is no whole number.
[[nodiscard]] Grid plan_grid(const GridRequest& request, const TrainCheck& check);

// The task with those of the options that are its own; the others are the model's and the training's. InputError as of
// make_task().
[[nodiscard]] std::unique_ptr<tasks::Task> task_with(const std::string& name, const Settings& options);

}  // namespace whence
