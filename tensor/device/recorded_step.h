// A step that runs many times with the same shapes. On a GPU it is recorded once and then launched as one graph: the
// time of a small step is mostly launches, and a graph is one launch.
//   RecordedStep step(device, [&] { ...; return std::vector<Tensor>{loss}; });
//   for (...) {
//     raw::copy_into(batch, input);                 // write new numbers into existing tensors
//     const double loss = step.run()[0].item();
//   }
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tensor/device/device_runtime.h"
#include "tensor/tensor.h"

namespace whence {

// run() n times does the work n times. On a GPU the first run is an ordinary one, which loads libraries and allocates
// buffers. The second is recorded and launched; later runs only launch. On the CPU the work is called every time: same
// results, no graph.
//
// REQUIRES, on a GPU: the host's side of the work runs only twice. Numbers that the host decides (a learning rate, the
// number of the step, copies from the CPU) stay those of the second run; dropout is refused. Tensors that the work
// reads from outside must stay alive; they are read anew at every run. Nothing inside may read numbers back or depend
// on them.
class RecordedStep {
 public:
  using Work = std::function<std::vector<Tensor>()>;
  RecordedStep(Device device, Work work);

  // Returns the work's results. From the second run on they are always the same memory, with new numbers.
  const std::vector<Tensor>& run();
  // Records if the next run would. If this throws, nothing was done.
  void record_if_due();
  bool recorded() const { return graph_ != nullptr; }

 private:
  Device device_;
  Work work_;
  bool warm_ = false;
  std::unique_ptr<RecordedWork> graph_;  // declared before results_, so that it outlives them
  std::vector<Tensor> results_;
};

}  // namespace whence
