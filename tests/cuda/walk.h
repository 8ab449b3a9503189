// Rows of the table of kernel calls on a GPU, or on the emulated one: the numbers of the CPU, in whole
// storages, so that writes next to an output show. Operands are used as they are, and one element further, where
// nothing is aligned to 16 bytes. In another order of threads the bits are the same.
#pragma once

#include "tests/support/device.h"
#include "tests/tensor/kernels/table.h"

namespace whence::test {

inline Tensors on_gpu(const Tensors& all, index_t lead) {
  Tensors there;
  for (const Tensor& x : all) there.push_back(on_device(x, Device::cuda(0), lead));
  return there;
}

// Returns what the call leaves in the storages of its outputs.
inline Tensors run_on_gpu(
    Kernels& by, const Given& start, const decltype(KernelCase::call)& call, index_t lead, std::uint64_t order) {
  const Tensors in = on_gpu(start.in, lead), out = on_gpu(start.out, lead);
  in_order(order, [&] { call(by, in, out); });
  Tensors wholes;
  for (const Tensor& y : out) wholes.push_back(y.defined() ? on_cpu(whole(y)) : y);
  return wholes;
}

inline void walk_on_gpu(const KernelCases& rows) {
  for (const KernelCase& row : rows) {
    if (row.on_cpu_alone || row.of_a_transformer) continue;
    for_each_way(row, [&](const Draw& draw) {
      const Given start = given(row, draw);
      const Tensors here = twins(start.out);
      row.call(kernels(Device::cpu()), start.in, here);
      Kernels& gpu = kernels(Tensor::empty({0}, draw.dtype, Device::cuda(0)));
      for (const index_t lead : {0, 1}) {
        CAPTURE(lead);
        const Tensors got = run_on_gpu(gpu, start, row.call, lead, static_cast<std::uint64_t>(lead));
        expect_same_bits(run_on_gpu(gpu, start, row.call, lead, 20 + static_cast<std::uint64_t>(lead)), got);
        if (row.composed && lead == 0) expect_same_bits(run_on_gpu(gpu, start, row.composed, lead, 0), got);
        for (std::size_t k = 0; k < got.size(); ++k) {
          if (!got[k].defined()) continue;
          CAPTURE(k);
          const Tensor expected = whole(here[k]), there = got[k].view(expected.shape(), {1}, lead);
          const DType dtype = expected.dtype();
          expect_numbers(row, k, read(there), read(expected), dtype);
          expect_numbers(row, k, read(there, true), read(expected, true), dtype);
        }
      }
    });
  }
}

}  // namespace whence::test
