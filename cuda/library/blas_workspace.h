// The memory that blas.cpp and blas_fused.cpp share, and their check of a status.
#pragma once

#include <cstddef>

namespace whence {

// Memory that cuBLAS and cuBLASLt both compute in: everything is on one stream, so they never do at the same time. It
// is ours because a graph stores its address. Its size decides the choice of kernel, and so the bits.
constexpr std::size_t blas_workspace_bytes = std::size_t{32} << 20;  // what NVIDIA advises for Hopper
void* blas_workspace();

// Error "matmul: call: what the library says" unless `status`, a cublasStatus_t, is success.
void require_blas(int status, const char* call);

}  // namespace whence
