// Fused ops, which training runs on a GPU. Each does in fewer kernels the work of several ops of autograd/ops.h, and
// tests require equal results.
#pragma once

#include <array>

#include "autograd/ops.h"

namespace whence {

// linear(gelu(linear(x, weight_in, bias_in)), weight_out, bias_out): x [... in], weight_in [m in], weight_out [out m],
// bias_in [m], bias_out [out], which may be undefined -> [... out].
[[nodiscard]] Tensor linear_gelu_linear(const Tensor& x, const Tensor& weight_in, const Tensor& bias_in,
    const Tensor& weight_out, const Tensor& bias_out, Site site = Site::current());

struct Projection {
  Tensor weight, bias;  // [h d, c], [h d] or undefined
};
// Returns linear(x, weight, bias) for each of the three projections (biases: all or none) of x [b t c], computed as one
// product. The results are its heads, as views [b h t d]. Key and value may have fewer heads: a divisor of the query's
// number.
[[nodiscard]] std::array<Tensor, 3> project_heads(const Tensor& x, const Projection& query, const Projection& key,
    const Projection& value, index_t heads, Site site = Site::current());
// Returns contiguous() of each.
[[nodiscard]] std::array<Tensor, 3> contiguous_all(const std::array<Tensor, 3>& x, Site site = Site::current());

}  // namespace whence
