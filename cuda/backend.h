// What cuda/ offers besides cuda_backend() of tensor/kernels.h.
#pragma once

#include "tensor/kernels.h"

namespace whence {

// The kernels of the CUDA backend, whether or not a GPU is there; null in a build without CUDA. Their bodies are single-source and run
// where their tensors are, so on a machine without a GPU they can be tested, and stepped through, with tensors of the CPU. Not the products
// of f16, bf16, f32 and f64: cuBLAS needs a GPU.
Kernels* cuda_bodies();

}  // namespace whence
