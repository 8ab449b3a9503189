// Attention from its stages to its output, in the equations of the papers (executor_reference.cpp).
#pragma once

#include <optional>

#include "autograd/ops.h"
#include "nn/attention/stages.h"
#include "tensor/random.h"

namespace whence {

struct PatternDropout {
  double probability;  // in [0, 1)
  Stream stream;
};

struct AttendInputs {
  Tensor x;                                    // [b j c]; undefined if attention runs on bare queries, keys and values
  Tensor query, key, value;                    // [b h i d], [b g j d], [b g j d]
  Sequence sequence;                           // mask, padding, positions
  std::optional<PatternDropout> dropout = {};  // on the pattern, in training
  std::optional<double> scale = {};            // factor of q.k; default 1 / sqrt(d)
};

// Returns the inputs with each head contiguous, if the device's products want that (nn/fused.cpp).
[[nodiscard]] AttendInputs heads_apart(AttendInputs inputs);

// Returns the context before scores; its queries and keys are rotated.
[[nodiscard]] AttendContext rotated_context(const AttendInputs& inputs, const Stages& stages);

// Runs the stages from scores to output [b h i d] for the query rows of `context`, whose queries and keys are already
// rotated. `whole`: the place of these rows in the whole pattern, from which dropout draws.
[[nodiscard]] Tensor attend_rows(AttendContext context, const Stages& stages,
    const std::optional<PatternDropout>& dropout = {}, const StripOf& whole = {});

// Runs the last stage only, on [b h i d].
[[nodiscard]] Tensor output_of(Tensor output, const AttendContext& context, const Stages& stages);

}  // namespace whence
