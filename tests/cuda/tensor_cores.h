// Kernels that show each function of cuda/vocabulary/tensor_cores.h, on a GPU or on the emulated one. Operands are f16,
// bf16, f32 (tf32 in registers) and, emulated, f64.
#pragma once

#include "tensor/tensor.h"

namespace whence::test {

// Returns c + a b by one mma: a [16, depth], b [depth, 8], c [16, 8], f32, or f64 if `operand` is. Each lane reads and
// writes its places in the maps of fragments.h.
Tensor product_by_maps(DType operand, const Tensor& a, const Tensor& b, const Tensor& c);

// The lanes' parts of four matrices of eight rows: x [32, matrix_row], copied ahead, with zeros in every third row; as
// numbers of f32, or f64 if x is.
struct Held {
  Tensor loaded, transposed;  // [4, 32, per_register]; transposed: not of f32
  Tensor moved;               // the first matrix through movmatrix
  Tensor stored;  // the transposed matrices stored by stmatrix, lane l's row as row 31 - l: [32, matrix_row]
};
Held held_matrices(const Tensor& x);

// Returns, for n floats, [6, n]: floor, 2^x, 1 / x, tf32, x as the nearest number of f16 in the upper half of a
// register, and the larger of x and 1.
Tensor functions_of(const Tensor& x);

}  // namespace whence::test
