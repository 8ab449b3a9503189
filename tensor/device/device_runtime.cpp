#include "tensor/device/device_runtime.h"

#include "tensor/backend.h"
#include "tensor/error.h"

namespace whence {

DeviceRuntime& runtime_of(Device device) {
  if (device.is_cpu())
    fail("runtime_of", "cpu given; a GPU is required; the CPU records nothing and has nothing to wait for");
  return *backend_of(device).runtime;
}

void synchronise(Device device) {
  if (!device.is_cpu()) runtime_of(device).synchronise();
}

RecordedStep::RecordedStep(Device device, Work work) : device_(device), work_(std::move(work)) {}

void RecordedStep::record_if_due() {
  if (device_.is_cpu() || !warm_ || graph_) return;
  results_.clear();
  std::vector<Tensor> results;
  graph_ = runtime_of(device_).record([&] { results = work_(); });
  results_ = std::move(results);
}

const std::vector<Tensor>& RecordedStep::run() {
  record_if_due();
  if (graph_) {
    graph_->replay();
    return results_;
  }
  results_ = work_();
  warm_ = true;
  return results_;
}

}  // namespace whence
