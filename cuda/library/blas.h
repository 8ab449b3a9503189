// The only interface to matrix products on the device, free of CUDA's own headers. blas.cpp calls cuBLAS and cuBLASLt;
// cuda/emulator/blas.cpp is the twin over OpenBLAS.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace whence {

// A row-major matrix, or a column-major one read as its transpose; `leading` is the stride between its rows (columns).
struct BlasMatrix {
  const void* first;
  bool transposed;
  index_t leading;
  index_t step;  // from one matrix of a batch to the next
};

// out[m, n] = alpha a[m, k] b[k, n] + beta out for `batch` matrices; f16, bf16, f32 or f64. 16-bit types are summed in
// f32, f32 in f32 (no TF32), f64 in f64. REQUIRES: all on the GPU, m, n, k > 0.
struct BlasProduct {
  DType dtype;
  index_t m, n, k;
  BlasMatrix a, b;
  void* out;  // row-major
  double alpha, beta;
  index_t batch;
  index_t leading = 0;  // stride of rows of out; 0: n; larger than n only if batch is 1
  bool wide = false;    // out holds the unrounded f32 sums, for a and b of 16 bits
  DType out_dtype() const { return wide ? compute_dtype(dtype) : dtype; }
  index_t out_leading() const { return leading ? leading : n; }
};
void multiply(const BlasProduct& product);

// Operations on a product while it is still in registers. A step of GPT-2's 124M, 16 sequences of 512 tokens, would
// move 4 GB more without: 0.9 of its 16.4 ms.
//   h = alpha a b + bias[n];  out = h, or with gelu: out = gelu(h), h goes to before_gelu.
// Sums stay in the compute type until each stored number is rounded once, so gelu is applied to the sum before rounding
// to 16 bits.
struct BlasEpilogue {
  const void* bias = nullptr;  // [n]; null: h = alpha a b
  // The tanh form, in 16 bit alone: the library's is an approximation, by up to 4e-4 of its value. Its gradient of GELU
  // is not used at all: that is a second pass, slower than our kernel.
  bool gelu = false;
  void* before_gelu = nullptr;  // [m, n] row-major without gaps, with gelu; null: not kept
  void* row_sums = nullptr;     // [m], sums of a's rows, for backward; used without the others; null: not wanted
};

// True if the epilogue may be given to cuBLASLt. Its choice of a kernel considers the alignment of the matrices alone.
// A kernel that loads a bias of another alignment 16 bytes at a time faults, which ends the process. Rows of
// before_gelu, of `n` numbers, must be multiples of 8.
[[nodiscard]] inline bool fits_epilogue(const BlasEpilogue& epilogue, index_t n) {
  for (const void* const memory :
      {epilogue.bias, static_cast<const void*>(epilogue.before_gelu), static_cast<const void*>(epilogue.row_sums)})
    if (reinterpret_cast<std::uintptr_t>(memory) % 16 != 0) return false;
  return !epilogue.before_gelu || n % 8 == 0;
}

// Does the product as above in one kernel. Returns false, with nothing written, if the library has no such kernel for
// this shape, dtype or alignment; the caller then does it in steps. REQUIRES: batch = 1, beta = 0, gelu in 16 bit
// alone.
[[nodiscard]] bool multiply_fused(const BlasProduct& product, const BlasEpilogue& epilogue);

// Counts a product given to the library for DeviceTraffic. runtime/backend.cpp.
void count_product(const BlasProduct& product);

}  // namespace whence
