// Unary and binary functions of contiguous operands: one kernel per function, in packs of 16 bytes. pointwise_packs.h
// has the bodies. pointwise_16_bits.cu and pointwise_floats.cu
// instantiate them, so that they compile in parallel.
#pragma once

#include "tensor/pointwise.h"
#include "tensor/tensor.h"

namespace whence::gpu {

// All tensors contiguous, of dtype T and of equal extents, every first element at a multiple of 16 bytes. An operand of
// binary whose step is 0 is instead one number for all elements, at any address.
template <class T> struct Contiguous {
  static void unary(Unary f, UnaryAttributes p, const Tensor& x, const Tensor& y);
  static void unary_backward(Unary f, UnaryAttributes p, const Tensor& kept, const Tensor& dy, const Tensor& dx);
  static void binary(Binary f, const Tensor& a, index_t a_step, const Tensor& b, index_t b_step, const Tensor& y);
};

}  // namespace whence::gpu
