// The one door to cuBLAS.
#pragma once

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace whence {

// A row-major matrix, or a column-major one read as its transpose; `leading` elements lie between its rows (columns).
struct BlasMatrix {
  const void* first;
  bool turned;
  index_t leading;
  index_t step;  // from one matrix of a batch to the next
};

// out[m, n] = alpha a[m, k] b[k, n] + beta out for `batch` matrices; f16, bf16, f32 or f64. 16-bit types are summed in f32, f32 in f32 (no
// TF32), f64 in f64. REQUIRES: all on the GPU, m, n, k > 0.
struct BlasProduct {
  DType dtype;
  index_t m, n, k;
  BlasMatrix a, b;
  void* out;  // row-major without gaps
  double alpha, beta;
  index_t batch;
};
void multiply(const BlasProduct& product);

}  // namespace whence
