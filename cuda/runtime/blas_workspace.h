// What the files of blas*.cpp share.
#pragma once

#include <cstddef>

namespace whence {

// Memory that cuBLAS and cuBLASLt both compute in: everything is on one stream, so they never do at the same time.
// Ours, and not theirs, because a graph writes its address down, and because the choice of kernel, and with it the
// bits, depends on its size.
constexpr std::size_t blas_workspace_bytes = std::size_t{32} << 20;  // what NVIDIA advises for Hopper
void* blas_workspace();

// Error "matmul: call: what the library says" unless `status`, a cublasStatus_t, is success.
void require_blas(int status, const char* call);

}  // namespace whence
