// A convolution of scores, which one scheme has (nn/positional/mta.cpp).
#pragma once

#include "autograd/op.h"

namespace whence {

// x [b h i j] by a kernel of each head, weight [h q k] with k odd and at most 63: over q - 1 earlier queries and keys on
// both sides. Row i has keys up to i + reach; what lies behind counts as 0, in x and in y.
[[nodiscard]] Tensor convolve_heads(const Tensor& x, const Tensor& weight, index_t reach, Site at = Site::current());

}  // namespace whence
