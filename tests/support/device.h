// Tensors on the GPU, or on the emulated one, beside their twins on the CPU.
#pragma once

#include <optional>

#include "cuda/runtime/backend.h"
#include "tensor/joined_kernels.h"
#include "tensor/raw.h"
#include "tests/support/tensors.h"

namespace whence::test {

// Whether cuda:0 can be used; says in the output what did not run, and why.
inline bool has_cuda() {
  const std::string reason = error_text([] { (void)kernels(Device::cuda(0)); });
  if (!reason.empty()) MESSAGE("skipped: " << reason);
  return reason.empty();
}

// The same tensor on another device: shape, strides, and everything that lies in its storage, used or not.
inline Tensor on_device(const Tensor& x, Device device) {
  if (!x.defined()) return x;
  const index_t offset = (x.bytes() - x.storage().bytes()) / static_cast<index_t>(size_of(x.dtype()));
  const Shape all{static_cast<index_t>(x.storage().size() / size_of(x.dtype()))};
  return raw::to_device(x.view(all, {1}, -offset), device).view(x.shape(), x.strides(), offset);
}
inline Tensor on_gpu(const Tensor& x) { return on_device(x, Device::cuda(0)); }
inline Tensor on_cpu(const Tensor& x) { return on_device(x, Device::cpu()); }

// f; on the emulated GPU in this order of threads: 0 ascending, 1 descending, else a random one.
template <class F> auto in_order(std::uint64_t order, const F& f) {
  CAPTURE(order);
  std::optional<With<std::uint64_t>> chosen;
  if (gpu::emulator::Settings* const settings = emulator_settings()) chosen.emplace(settings->order, order);
  return f();
}

// f once; on the emulated GPU in several orders of threads.
template <class F> void in_every_order(const F& f) {
  if (!emulator_settings()) return f();
  for (const std::uint64_t order : std::initializer_list<std::uint64_t>{0, 1, 20, 21}) in_order(order, f);
}

// What `run` makes of the outputs with each device's kernels. `at` moves an input to the device in question. Everything
// in the outputs' storages is compared: what a kernel writes beside its output shows.
using Outputs = std::vector<Tensor>;
using Mover = std::function<Tensor(const Tensor&)>;
inline void expect_same_on_gpu(const std::string& name, DType dtype, const Outputs& outputs, index_t terms,
    const std::function<void(Kernels&, const Mover&, const Outputs&)>& run) {
  CAPTURE(name);
  CAPTURE(std::string(to_string(dtype)));
  const auto whole = [](const Tensor& y) {
    const index_t offset = (y.bytes() - y.storage().bytes()) / static_cast<index_t>(size_of(y.dtype()));
    return y.view({static_cast<index_t>(y.storage().size() / size_of(y.dtype()))}, {1}, -offset);
  };
  Outputs expected;
  for (const Tensor& y : outputs) expected.push_back(on_cpu(on_gpu(y)));
  run(
      cpu_kernels(), [](const Tensor& x) { return x; }, expected);
  in_every_order([&] {
    Outputs got;
    for (const Tensor& y : outputs) got.push_back(on_gpu(y));
    run(kernels(Device::cuda(0)), on_gpu, got);
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      const Tensor here = whole(on_cpu(got[k])), there = whole(expected[k]);
      const DType judged = is_floating(outputs[k].dtype()) ? outputs[k].dtype() : DType::f64;
      expect_close(read(here), read(there), judged, terms);
      expect_close(read(here, true), read(there, true), judged, terms);
    }
  });
}

}  // namespace whence::test
