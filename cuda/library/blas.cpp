// Row-major products by cuBLAS, which is column-major: out' = b' a'. Those with a bias, with a bias and GELU, or with
// the gradient of a bias, in one kernel of cuBLASLt. A plan of these is made once per shape.
#include "cuda/library/blas.h"

#include <cublasLt.h>
#include <cublas_v2.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>

#include "cuda/runtime/runtime.h"
#include "tensor/error.h"

namespace whence {
namespace {

// Throws Error "matmul: call: the library's message" unless `status` is success.
void require_blas(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) fail("matmul", call, ": ", cublasGetStatusString(status));
}

// The workspace of both cuBLAS and cuBLASLt: everything is on one stream, so they never use it at the same time. whence
// owns it because a graph stores its address. Its size decides the choice of kernel, and so the bits.
constexpr std::size_t blas_workspace_bytes = std::size_t{32} << 20;  // what NVIDIA advises for Hopper
void* blas_workspace() {
  static void* const memory = [] {
    void* taken = gpu::allocate(blas_workspace_bytes);
    if (!taken)
      fail("matmul", "no room for cuBLAS; ", bytes_text(blas_workspace_bytes), " of GPU memory required; free some");
    return taken;
  }();
  return memory;
}

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

// Everything that the choice of a kernel depends on.
using PlanKey = std::array<index_t, 16>;

// Alignment in bytes, as far as kernels care: their widest loads need 16.
index_t alignment_of(const void* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const auto lowest_bit = static_cast<index_t>(address & (~address + 1));  // of no null
  return std::min<index_t>(lowest_bit, 16);
}

PlanKey key_of(const BlasProduct& p, const BlasEpilogue& e) {
  return {static_cast<index_t>(p.dtype), p.m, p.n, p.k, p.a.transposed, p.b.transposed, p.a.leading, p.b.leading,
      p.out_leading(), e.bias != nullptr, e.gelu, e.before_gelu != nullptr, e.row_sums != nullptr,
      alignment_of(p.a.first), alignment_of(p.b.first), alignment_of(p.out)};
}

cublasLtHandle_t handle_of_lt() {
  static const cublasLtHandle_t handle = [] {
    cublasLtHandle_t created = nullptr;
    require_blas(cublasLtCreate(&created), "cublasLtCreate");
    return created;
  }();
  return handle;
}

cublasLtEpilogue_t epilogue_of(const BlasEpilogue& e) {
  // cublasLt.h: BGRADB sums over k and has a number for each column of D. To cuBLASLt our a is B, and a row of out is a
  // column of D.
  if (e.row_sums) return CUBLASLT_EPILOGUE_BGRADB;
  if (!e.gelu) return e.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  if (!e.before_gelu) return e.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  return e.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
}

// The description of a product for cuBLASLt, and the kernel that it advises; `usable` is false if it has none.
class Plan {
 public:
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    for (const cublasLtMatrixLayout_t layout : {left_, right_, out_})
      static_cast<void>(cublasLtMatrixLayoutDestroy(layout));
    static_cast<void>(cublasLtMatmulDescDestroy(operation_));
  }
  Plan(const BlasProduct& p, const BlasEpilogue& e) {
    const cudaDataType_t type = cuda_type(p.dtype);
    require_blas(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(e));
    if (e.before_gelu) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, static_cast<std::int64_t>(p.n));
    // Column-major: out' [n m] = b' [n k] a' [k m]. A transposed matrix is stored the other way round.
    left_ = layout(type, p.b.transposed ? p.k : p.n, p.b.transposed ? p.n : p.k, p.b.leading);
    right_ = layout(type, p.a.transposed ? p.m : p.k, p.a.transposed ? p.k : p.m, p.a.leading);
    out_ = layout(type, p.n, p.m, p.out_leading());
    point_to(e);
    choose(p);
  }

  bool usable() const { return usable_; }

  void run(const BlasProduct& p, const BlasEpilogue& e) {
    point_to(e);
    const float alpha = static_cast<float>(p.alpha), beta = 0;
    require_blas(cublasLtMatmul(handle_of_lt(), operation_, &alpha, p.b.first, left_, p.a.first, right_, &beta, p.out,
                     out_, p.out, out_, &chosen_.algo, blas_workspace(), blas_workspace_bytes, gpu::stream()),
        "cublasLtMatmul");
    gpu::launched({e.gelu ? "a product of cuBLASLt with GELU" : "a product of cuBLASLt", 0, 0, 0});
    count_product(p);
  }

 private:
  template <class Value> void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    require_blas(
        cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }

  static cublasLtMatrixLayout_t layout(cudaDataType_t type, index_t rows, index_t columns, index_t leading) {
    cublasLtMatrixLayout_t created = nullptr;
    require_blas(cublasLtMatrixLayoutCreate(
                     &created, type, static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns), leading),
        "cublasLtMatrixLayoutCreate");
    return created;
  }

  void point_to(const BlasEpilogue& e) {
    // One pointer for the vector that is a bias or row sums, in the output's dtype, and one for the extra matrix
    // output.
    const void* const vector = e.bias ? e.bias : e.row_sums;
    if (vector) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
    if (e.before_gelu) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, e.before_gelu);
  }

  // Partial sums stay in the compute type and are added in a fixed order, or there are none.
  void choose(const BlasProduct& p) {
    cublasLtMatmulPreference_t wish = nullptr;
    require_blas(cublasLtMatmulPreferenceCreate(&wish), "cublasLtMatmulPreferenceCreate");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      require_blas(cublasLtMatmulPreferenceSetAttribute(wish, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(blas_workspace_bytes));
    prefer(
        CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    const auto aligned = [](const void* memory) { return static_cast<std::uint32_t>(alignment_of(memory)); };
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned(p.b.first));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned(p.a.first));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned(p.out));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned(p.out));
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_of_lt(), operation_, left_, right_, out_, out_, wish, 1, &chosen_, &count);
    static_cast<void>(cublasLtMatmulPreferenceDestroy(wish));
    usable_ = status == CUBLAS_STATUS_SUCCESS && count == 1 && chosen_.state == CUBLAS_STATUS_SUCCESS;
    // "Not supported" is an answer; anything else is an error.
    if (status != CUBLAS_STATUS_SUCCESS && status != CUBLAS_STATUS_NOT_SUPPORTED)
      require_blas(status, "cublasLtMatmulAlgoGetHeuristic");
  }

  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t left_ = nullptr, right_ = nullptr, out_ = nullptr;
  cublasLtMatmulHeuristicResult_t chosen_{};
  bool usable_ = false;
};

}  // namespace

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

bool multiply_fused(const BlasProduct& p, const BlasEpilogue& e) {
  const bool supported = p.dtype == DType::f16 || p.dtype == DType::bf16 || p.dtype == DType::f32;
  if (!supported || !fits_epilogue(e, p.n)) return false;
  static std::mutex& mutex = *new std::mutex;
  static auto& known = *new std::map<PlanKey, std::unique_ptr<Plan>>;
  const std::scoped_lock lock(mutex);
  if (known.size() >= 4096) known.clear();  // training has few shapes, inference perhaps one per length of the text
  std::unique_ptr<Plan>& plan = known[key_of(p, e)];
  if (!plan) plan = std::make_unique<Plan>(p, e);
  if (!plan->usable()) return false;
  plan->run(p, e);
  return true;
}

}  // namespace whence
