// Products of few rows, such as one decoded token, with matrices whose columns are contiguous.
#pragma once

#include <span>

#include "tensor/tensor.h"

namespace whence::gpu {

inline constexpr index_t most_few_rows = 4;

// out [m n] = alpha a [m k] b [k n] (+ bias [n]), where b are adjacent matrices, with a bias each or none. before:
// null, or out is gelu of these sums, which go to `before`. Returns false, with nothing done, for more rows, for dtypes
// other than f16, bf16 and f32, and if rows of a or columns of b do not begin at 16 bytes.
bool multiply_few_rows(const Tensor& a, std::span<const Tensor> b, std::span<const Tensor> bias, double alpha,
    const Tensor* before, const Tensor& out);

}  // namespace whence::gpu
