// The CPU's kernels in a whole build: those of the core, on many threads, and products by OpenBLAS and tiles.
#pragma once

#include "tensor/kernels.h"

namespace whence {

#ifdef __EMSCRIPTEN__
using CpuKernels = Kernels;  // a page has the core's products
#else
class CpuKernels final : public Kernels {
 public:
  void matmul(const Tensor& a, const Tensor& b, const Tensor* bias, double alpha, const Tensor& out) override;
};
#endif

}  // namespace whence
