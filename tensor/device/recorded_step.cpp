#include "tensor/device/recorded_step.h"

#include "tensor/device/backend.h"
#include "tensor/kernels.h"

namespace whence {

RecordedStep::RecordedStep(Device device, Work work) : device_(device), work_(std::move(work)) {}

const std::vector<Tensor>& RecordedStep::run() {
  if (graph_) {
    graph_->replay();
    return results_;
  }
  if (device_.is_cpu() || !warm_) {
    results_ = work_();
    warm_ = true;
    return results_;
  }
  results_.clear();
  std::vector<Tensor> results;
  std::unique_ptr<RecordedWork> graph = runtime_of(device_).record([&] { results = work_(); });
  graph->replay();
  graph_ = std::move(graph);
  results_ = std::move(results);
  return results_;
}

}  // namespace whence
