// The training loop: steps one after another, and behind each what is due then, such as a validation or a checkpoint.
//   train(step, schedule, 1, 1000, {{.every = 10, .run = [](std::int64_t n, const StepOutcome& done) { ... }}});
#pragma once

#include <functional>
#include <vector>

#include "nn/training/schedule.h"
#include "nn/training/training_step.h"

namespace whence {

struct TrainingHook {
  std::int64_t every = 1;  // steps
  bool at_last = false;    // behind the last step too
  std::function<void(std::int64_t step, const StepOutcome& outcome)> run = {};
};

// Takes steps `first` to `last`, until `enough` says so, which is asked before each; hooks run in their order. Returns
// the number of the last step that was taken: first - 1 where there was none. Throws what a step or a hook does.
std::int64_t train(TrainingStep& training, const Schedule& schedule, std::int64_t first, std::int64_t last,
    const std::vector<TrainingHook>& hooks, const std::function<bool()>& enough = {});

}  // namespace whence
