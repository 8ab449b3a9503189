// A convolution of scores, used by one scheme (nn/positional/later/mta.cpp).
#pragma once

#include "autograd/op.h"

namespace whence {

// Convolves x [b h i j] with a kernel for each head, weight [h q k] with k odd and at most 63, over q - 1 earlier
// queries and keys on both sides. Row i has keys up to i + reach; keys after them count as 0, in x and in y.
[[nodiscard]] Tensor convolve_heads(const Tensor& x, const Tensor& weight, index_t reach, Site site = Site::current());

}  // namespace whence
