// Row-major products by cuBLAS, which is column-major: out' = b' a'.
#include "cuda/library/blas.h"

#include <cublas_v2.h>

#include "cuda/runtime/runtime.h"
#include "tensor/error.h"

namespace whence {
namespace {

// One handle and one stream: cuBLAS then gives the same bits on every run. Never destroyed: the driver may be unloaded
// first.
cublasHandle_t handle() {
  static const cublasHandle_t handle = [] {
    cublasHandle_t created = nullptr;
    require_blas(cublasCreate(&created), "cublasCreate");
    // By default partial sums of 16-bit products may be rounded to 16 bit.
    require_blas(cublasSetMathMode(created, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION), "cublasSetMathMode");
    require_blas(cublasSetStream(created, gpu::stream()), "cublasSetStream");  // before the workspace, which it resets
    require_blas(cublasSetWorkspace(created, blas_workspace(), blas_workspace_bytes), "cublasSetWorkspace");
    return created;
  }();
  return handle;
}

cudaDataType_t cuda_type(DType dtype) {
  switch (dtype) {
    case DType::f16: return CUDA_R_16F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f32: return CUDA_R_32F;
    case DType::f64: return CUDA_R_64F;
    case DType::i32:
    case DType::i64:
    case DType::boolean:
    case DType::dual: break;
  }
  wrong_dtype("matmul", dtype, "f16, bf16, f32 or f64");
}

}  // namespace

void require_blas(int status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail("matmul", call, ": ", cublasGetStatusString(static_cast<cublasStatus_t>(status)));
}

void* blas_workspace() {
  static void* const memory = [] {
    void* taken = gpu::allocate(blas_workspace_bytes);
    if (!taken)
      fail("matmul", "no room for cuBLAS; ", bytes_text(blas_workspace_bytes), " of GPU memory required; free some");
    return taken;
  }();
  return memory;
}

void multiply(const BlasProduct& p) {
  const cudaDataType_t type = cuda_type(p.dtype);
  const bool is_double = p.dtype == DType::f64;
  const float alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.beta);
  const void* const alpha_at = is_double ? static_cast<const void*>(&p.alpha) : &alpha;
  const void* const beta_at = is_double ? static_cast<const void*>(&p.beta) : &beta;
  const cublasStatus_t status = cublasGemmStridedBatchedEx_64(handle(), p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
      p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, p.n, p.m, p.k, alpha_at, p.b.first, type, p.b.leading, p.b.step,
      p.a.first, type, p.a.leading, p.a.step, beta_at, p.out, cuda_type(p.out_dtype()), p.out_leading(), p.m * p.n,
      p.batch, is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  require_blas(status, "cublasGemmStridedBatchedEx");
  gpu::launched({"a product of cuBLAS", 0, 0, 0});
  count_product(p);
}

}  // namespace whence
