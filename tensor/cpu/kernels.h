// The CPU's kernels in a whole build: those of the core, on many threads, and products by OpenBLAS and tiles.
#pragma once

#include "tensor/device/joined_kernels.h"

namespace whence {

#ifdef __EMSCRIPTEN__
using CpuKernels = JoinedKernels;  // a page has the core's products
#else
class CpuKernels final : public JoinedKernels {
 public:
  void matmul(const Tensor& a, const Tensor& b, const Tensor* bias, double alpha, const Tensor& out) override;
};
#endif

}  // namespace whence
