// Attention from its stages to its output, as the papers write it (executor_reference.cpp).
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
  Tensor x;                  // [b j c]; undefined where attention is run on bare queries, keys and values
  Tensor query, key, value;  // [b h i d], [b g j d], [b g j d]
  Sequence sequence;         // mask, padding, positions
  std::optional<PatternDropout> dropout = {};  // of the pattern, in training
  std::optional<double> scale = {};            // of q.k; 1 / sqrt(d) when none is given
};

// Returns the inputs with the numbers of each head by themselves, where products of a device want that (nn/fused.cpp).
[[nodiscard]] AttendInputs heads_apart(AttendInputs inputs);

// Returns the context before scores: queries and keys are rotated.
[[nodiscard]] AttendContext rotated_context(const AttendInputs& inputs, const Stages& stages);

// The stages from scores to output [b h i d] for the query rows of `context`, whose queries and keys are rotated
// already. `whole`: where these rows lie in the whole pattern, by which dropout draws.
[[nodiscard]] Tensor attend_rows(AttendContext context, const Stages& stages,
    const std::optional<PatternDropout>& dropout = {}, const StripOf& whole = {});

// The last stage alone, on [b h i d].
[[nodiscard]] Tensor output_of(Tensor output, const AttendContext& context, const Stages& stages);

}  // namespace whence
