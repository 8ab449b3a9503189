#include "examples/whence/run/training_loop.h"

namespace whence {

std::int64_t train(TrainingStep& training, const Schedule& schedule, std::int64_t first, std::int64_t last,
    const std::vector<TrainingHook>& hooks, const std::function<bool()>& enough) {
  std::int64_t step = first;
  for (; step <= last && !(enough && enough()); ++step) {
    const StepOutcome outcome = training.take(step, schedule(step));  // forward, backward, clipping, Adam
    for (const TrainingHook& hook : hooks)
      if (step % hook.every == 0 || (hook.at_last && step == last)) hook.run(step, outcome);
  }
  return step - 1;
}

}  // namespace whence
