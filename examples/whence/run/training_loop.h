// The training loop: takes steps in order, and after each runs the hooks that are due: a validation, a checkpoint.
//   train(step, schedule, 1, 1000, {{.every = 10, .run = [](std::int64_t n, const StepOutcome& done) { ... }}});
#pragma once

#include <functional>
#include <vector>

#include "nn/training/schedule.h"
#include "nn/training/training_step.h"

namespace whence {

struct TrainingHook {
  std::int64_t every = 1;  // steps
  bool at_last = false;    // after the last step too
  std::function<void(std::int64_t step, const StepOutcome& outcome)> run = {};
};

// Takes steps `first` to `last`; stops early when `enough`, called before each step, returns true. Hooks run in order.
// Returns the number of the last step taken, first - 1 if none. Throws the errors of steps and hooks.
std::int64_t train(TrainingStep& training, const Schedule& schedule, std::int64_t first, std::int64_t last,
    const std::vector<TrainingHook>& hooks, const std::function<bool()>& enough = {});

}  // namespace whence
