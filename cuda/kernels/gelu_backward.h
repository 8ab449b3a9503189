// The gradient of GELU in the backward of a layer, with that of the layer's bias.
#pragma once

#include "tensor/tensor.h"

namespace whence::gpu {

// dh [m n] becomes dh gelu'(h), the tanh form, and sums [n] the sums of its columns, in one pass over h and dh. All
// contiguous, of one dtype from f16 to f64; m, n > 0.
void gelu_backward(const Tensor& h, const Tensor& dh, const Tensor& sums);

}  // namespace whence::gpu
