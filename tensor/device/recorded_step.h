// A step that runs many times with the same shapes. On a GPU it is recorded once and then launched as one graph: a
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

#include "tensor/device/device_runtime.h"
#include "tensor/tensor.h"

namespace whence {

// run() n times does the work n times. On a GPU the first run is an ordinary one, so that libraries are loaded and
// buffers made. The second is recorded and launched. From the third on it is only launched. On the CPU the work is
// called every time: same results, no graph.
//
// What must hold on a GPU. The host's side of the work happens twice only. Numbers that the host decides (a learning
// rate, the number of the step, what is copied from the CPU) are those of the second time; dropout is refused.
// Tensors that it reads from outside must stay alive; they are read anew at every run. Nothing inside may read
// numbers back or depend on them.
class RecordedStep {
 public:
  using Work = std::function<std::vector<Tensor>()>;
  RecordedStep(Device device, Work work);

  // What the work returned. From the second time on it is always the same memory, with new numbers.
  const std::vector<Tensor>& run();
  // Records where the next run would: what throws here has done nothing.
  void record_if_due();
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
