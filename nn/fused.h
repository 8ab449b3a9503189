// What a GPU does in fewer kernels than the layers are written in: the only file that asks where a layer runs. Each
// function is its plain form, which the CPU runs; tests/cuda/layers.cpp holds the two equal.
#pragma once

#include <optional>

#include "autograd/ops.h"
#include "nn/attention/stages.h"
#include "nn/layers/mlp.h"
#include "nn/layers/norm.h"

namespace whence {

// {x + added, norm(x + added)}, of one shape [..., c]
[[nodiscard]] SumAndNorm add_then_norm(
    const Tensor& x, const Tensor& added, const Norm& norm, Site site = Site::current());

// x [b t c] by each of the three, with its heads apart: [b h t d].  (Vaswani et al. 2017, section 3.2.2)
[[nodiscard]] Heads project(const Tensor& x, const Linear& query, const Linear& key, const Linear& value, index_t heads,
    Site site = Site::current());

// softmax(logits, sequence.mask()): masked keys get exactly 0. [b h i j]
[[nodiscard]] Tensor softmax_of_visible(const Tensor& logits, const Sequence& sequence);

// The pattern [b h i j] of scores to which schemes add what is read by distance, and nothing else: softmax reads the
// one table of it, so that no tensor of pairs is made of the bias. Nothing where it is to be composed of its stages.
[[nodiscard]] std::optional<Tensor> pattern_at_once(const AttendContext& context, const Stages& stages);

// mlp(x, pass), x [..., c]
[[nodiscard]] Tensor feed_forward(const MLP& mlp, const Tensor& x, const Pass& pass, Site site = Site::current());

}  // namespace whence
