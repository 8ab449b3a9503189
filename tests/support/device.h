// Tensors on the GPU, or on the emulated one, with their twins on the CPU.
#pragma once

#include <optional>

#include "cuda/runtime/backend.h"
#include "tensor/kernels.h"
#include "tests/support/tensors.h"

namespace whence::test {

// True if cuda:0 can be used. Otherwise prints what did not run, and why.
inline bool has_cuda() {
  const std::string reason = error_text([] { (void)kernels(Device::cuda(0)); });
  if (!reason.empty()) MESSAGE("skipped: " << reason);
  return reason.empty();
}

// Returns the same tensor on another device: shape, strides, and its whole storage, used or not, `lead` elements further
// from the start. With lead = 1 nothing is aligned to 16 bytes.
inline Tensor on_device(const Tensor& x, Device device, index_t lead = 0) {
  if (!x.defined()) return x;
  const index_t offset = (x.bytes() - x.storage().bytes()) / static_cast<index_t>(size_of(x.dtype()));
  const index_t count = static_cast<index_t>(x.storage().size() / size_of(x.dtype()));
  Tensor all = x.view({count}, {1}, -offset);
  if (lead > 0) {
    const Tensor further = Tensor::zeros({count + lead}, x.dtype());
    raw::copy_into(all, further.view({count}, {1}, lead));
    all = further;
  }
  return raw::to_device(all, device).view(x.shape(), x.strides(), offset + lead);
}
inline Tensor on_gpu(const Tensor& x) { return on_device(x, Device::cuda(0)); }
inline Tensor on_cpu(const Tensor& x) { return on_device(x, Device::cpu()); }

// Runs f; on the emulated GPU in this order of threads: 0 ascending, 1 descending, else a random one.
template <class F> auto in_order(std::uint64_t order, const F& f) {
  CAPTURE(order);
  std::optional<With<std::uint64_t>> chosen;
  if (gpu::emulator::Settings* const settings = emulator_settings()) chosen.emplace(settings->order, order);
  return f();
}

// Runs f once; on the emulated GPU in several orders of threads.
template <class F> void in_every_order(const F& f) {
  if (!emulator_settings()) return f();
  for (const std::uint64_t order : std::initializer_list<std::uint64_t>{0, 1, 20, 21}) in_order(order, f);
}

// The shared memory of an H200 during its lifetime, on the emulated GPU.
class SharedMemoryOfH200 {
 public:
  SharedMemoryOfH200() {
    if (gpu::emulator::Settings* const settings = emulator_settings())
      chosen_.emplace(settings->shared, std::size_t(227) << 10);
  }

 private:
  std::optional<With<std::size_t>> chosen_;
};

// Returns f(inputs) on the device, a random cotangent, and the gradients of all floating inputs.
inline std::vector<Tensor> results_on(
    Device device, const std::vector<Tensor>& inputs, const std::function<Tensor(const std::vector<Tensor>&)>& f) {
  std::vector<Tensor> there, leaves;
  for (const Tensor& x : inputs) {
    const bool floating = x.defined() && is_floating(x.dtype());
    there.push_back(floating ? requires_grad(on_device(x, device)) : on_device(x, device));
    if (floating) leaves.push_back(there.back());
  }
  std::vector<Tensor> results{f(there)};
  if (!is_floating(results[0].dtype()) || leaves.empty()) return results;
  results.push_back(on_device(random_contiguous(results[0].shape(), results[0].dtype(), 5), device));
  for (const Tensor& gradient : grad(results[0], results[1], leaves, {.allow_unused = true}))
    results.push_back(gradient);
  return results;
}

}  // namespace whence::test
