// A step that is done many times with the same shapes, recorded once on a GPU and launched from then on as one graph: a
// small step is mostly launches, and a graph has one.
//   RecordedStep step(device, [&] { ...; return std::vector<Tensor>{loss}; });
//   for (...) {
//     raw::copy_into(batch, input);                 // new numbers go into tensors that exist
//     const double loss = step.run()[0].item();
//   }
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tensor/device_runtime.h"
#include "tensor/tensor.h"

namespace whence {

// run() n times does the work n times. On a GPU the first time as it stands, so that libraries are loaded and buffers
// made; the second time it is recorded and launched; from the third on only launched. On the CPU it is called every
// time: same results, no graph.
//
// What must hold on a GPU. The host's side of the work happens twice only: numbers that the host decides (a learning
// rate, the number of the step, the randomness of dropout, what is copied from the CPU) are those of the second time.
// The tensors that it reads from outside must stay alive and are read anew at every run. Nothing inside may read
// numbers back or depend on them.
class RecordedStep {
 public:
  using Work = std::function<std::vector<Tensor>()>;
  RecordedStep(Device device, Work work);

  // What the work returned. From the second time on it is always the same memory, with new numbers.
  const std::vector<Tensor>& run();

  bool recorded() const { return graph_ != nullptr; }

 private:
  Device device_;
  Work work_;
  bool warm_ = false;
  std::unique_ptr<RecordedWork>
      graph_;  // before results_: they are freed first, and the graph with its memory after them
  std::vector<Tensor> results_;
};

}  // namespace whence
