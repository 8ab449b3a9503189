// Joined ops, which training runs on a GPU: each does in fewer kernels what ops of autograd/ops.h do one after the other, and tests
// hold it equal to them.
#pragma once

#include <array>

#include "autograd/ops.h"

namespace whence {

// linear(gelu(linear(x, weight_in, bias_in)), weight_out, bias_out): x [... in], weight_in [m in], weight_out [out m],
// bias_in [m], bias_out [out], which may be undefined -> [... out].
[[nodiscard]] Tensor linear_gelu_linear(const Tensor& x, const Tensor& weight_in, const Tensor& bias_in,
    const Tensor& weight_out, const Tensor& bias_out, Site at = Site::current());

struct Projection {
  Tensor weight, bias;  // [h d, c], [h d] or undefined
};
// x [b t c]: linear(x, weight, bias) by each of the three (biases: all or none), in one product, of which the heads are
// views [b h t d]. Key and value may have fewer heads than the query, a divisor of its number.
[[nodiscard]] std::array<Tensor, 3> project_heads(const Tensor& x, const Projection& query, const Projection& key,
    const Projection& value, index_t heads, Site at = Site::current());
// contiguous() of each.
[[nodiscard]] std::array<Tensor, 3> contiguous_all(const std::array<Tensor, 3>& x, Site at = Site::current());

// x [..., i, j], where row i has the entries j <= first_row + i alone: softmax under a causal mask without the mask.
[[nodiscard]] Tensor causal_softmax(const Tensor& x, index_t first_row = 0, Site at = Site::current());
// causal_softmax(x + by_distance(table, steps), first_row), x [b h i j], table [h n].
[[nodiscard]] Tensor causal_softmax_by_distance(
    const Tensor& x, const Tensor& table, const Steps& steps, index_t first_row = 0, Site at = Site::current());

}  // namespace whence
