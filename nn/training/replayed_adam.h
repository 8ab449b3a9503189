// Adam's step, with clipping, as launches that a graph can hold. Numbers that change from step to step are read from
// the device's memory, and nothing waits for the device. It also runs on the CPU.
//   ReplayedAdam replayed(adam);
//   replayed.prepare(rate, max_norm, loss_scale);   // before each replay: copies a few numbers to the device
//   graph.replay();                                 // captured around: forward, backward, replayed.step()
//   const GradientNorm norm = replayed.finish();    // waits; not finite: nothing changed, the step does not count
#pragma once

#include "nn/training/optim.h"

namespace whence {

class ReplayedAdam {
 public:
  // REQUIRES: `adam` outlives this.
  explicit ReplayedAdam(Adam& adam) : adam_(adam) {}

  // Gradients and max_norm are sums of `terms`; the step uses their mean. Error for everything that clip_by_global_norm
  // and Optimizer::step refuse.
  void prepare(
      double learning_rate, double max_norm, double loss_scale = 1, double terms = 1, Site site = Site::current());
  void step(Site site = Site::current());
  // Counts the step, and marks the weights as written, because a graph writes them without the host.
  [[nodiscard]] GradientNorm finish(Site site = Site::current());

 private:
  Adam& adam_;
  Tensor controls_;  // see Control
};

}  // namespace whence
