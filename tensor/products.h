// In which numbers the CPU multiplies matrices of f32: f32, or bf16, which is faster where the processor can.
// bf16 keeps 8 significant bits: each operand is off by at most 2^-9 of itself (below 2^-126 it may count as 0), and
// sum a b by about 2^-8 sum |a b|, besides the rounding of f32, in which sums are kept. Products of fewer than 8 rows
// or columns, very small ones and those of other dtypes stay as they are. Same bits for any number of threads.
#pragma once

#include "tensor/dtype.h"

namespace whence {

bool can_multiply_bf16();               // this processor (AVX512_BF16), and this build
DType product_numbers();                // f32 at first
void set_product_numbers(DType dtype);  // from now on; Error unless f32, or bf16 where can_multiply_bf16()

}  // namespace whence
