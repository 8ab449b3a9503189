// Attention as the papers write it: one op per step, every intermediate named, all rows at once.
#include <cmath>

#include "autograd/inspect/probe.h"
#include "autograd/ops.h"
#include "nn/attention/by_distance.h"
#include "nn/attention/executor.h"

namespace whence {
namespace {

class ReferenceExecutor final : public Executor {
 public:
  const char* name() const override { return "reference"; }
  std::string refusal(const Stages&) const override { return {}; }

  Tensor attend(const AttendInputs& inputs, const Stages& stages) const override {
    const index_t first_row = inputs.sequence.first_row;
    return attend_rows(rotated_context(inputs, stages), stages, inputs.dropout,
        {first_row, first_row + inputs.query.size(2), inputs.key.size(2)});
  }
};

// On a GPU a mask by causality alone is a fact that kernels go by.
bool by_fact(const AttendContext& context) {
  return context.device.is_gpu() && context.causal && !context.present.defined() && !context.given_mask.defined();
}

struct BiasTable {
  Distances distances;
  Tensor table;  // [h n]
};

// Where all that is added to the scores is read by distance and nothing else happens to them: the one table of it,
// which softmax reads itself, so that no tensor of pairs is made of it. Nothing where tokens stand at different positions.
std::optional<BiasTable> table_for_softmax(const AttendContext& context, const Stages& stages) {
  const bool alone = stages.transforms.empty() && stages.maps.empty() && stages.patterns.empty();
  if (!alone || !by_fact(context) || pairs_are_watched()) return std::nullopt;
  std::optional<BiasTable> sum;
  for (const auto& stage : stages.biases) {
    const auto* scheme = dynamic_cast<const ReadsByDistance*>(stage.scheme);
    if (!scheme) return std::nullopt;
    const StageScope scope(*stage.path);
    const AttendContext moved = stage.at(context);
    const std::optional<Distances> distances = whole_distances(moved);
    if (!distances || (sum && !distances->reads_as(sum->distances))) return std::nullopt;
    const std::optional<Tensor> numbers = scheme->table(distances->values, moved);
    if (!numbers) return std::nullopt;
    sum = BiasTable{*distances, sum ? sum->table + *numbers : *numbers};
  }
  return sum;
}

// The scores with all that schemes make of them.
Tensor logits_of(AttendContext& context, const Stages& stages) {
  for (const auto& stage : stages.biases) {
    const StageScope scope(*stage.path);
    const Tensor bias = stage.scheme->bias(stage.at(context));
    context.bias = context.bias.defined() ? context.bias + bias : bias;  // [1|b h i j]
  }
  Tensor logits = context.bias.defined() ? context.content_scores + context.bias : context.content_scores;
  for (const auto& stage : stages.transforms) {
    const StageScope scope(*stage.path);
    logits = stage.scheme->transform_scores(logits, stage.at(context));
  }
  for (const auto& stage : stages.maps) {
    const StageScope scope(*stage.path);
    logits = stage.scheme->map_scores(logits, stage.at(context));
  }
  return probe("logits", logits);
}

Tensor pattern_of(const Tensor& logits, const AttendContext& context, const Stages& stages) {
  if (stages.patterns.empty())  // masked keys get exactly 0
    return by_fact(context) ? causal_softmax(logits, context.first_row) : softmax(logits, context.mask());
  const auto& stage = stages.patterns[0];
  const StageScope scope(*stage.path);
  return stage.scheme->pattern(logits, stage.at(context));
}

}  // namespace

AttendContext rotated_context(const AttendInputs& inputs, const Stages& stages) {
  AttendContext context;
  static_cast<Sequence&>(context) = inputs.sequence.on(inputs.query.device());
  context.x = inputs.x;
  context.query = context.unrotated_query = probe("q", inputs.query);
  context.key = probe("k", inputs.key);
  context.value = probe("v", inputs.value);
  context.scale = inputs.scale.value_or(1 / std::sqrt(static_cast<double>(inputs.query.size(-1))));
  for (const auto& stage : stages.rotates) {
    const StageScope scope(*stage.path);
    stage.scheme->rotate(context.query, context.key, stage.moved(context.positions));
  }
  return context;
}

Tensor attend_rows(
    AttendContext context, const Stages& stages, const std::optional<PatternDropout>& dropping, const StripOf& whole) {
  context.content_scores =
      probe("scores", matmul(context.query, transpose(context.key), context.scale));  // S = q.k / sqrt(d), [b h i j]
  const std::optional<BiasTable> bias = table_for_softmax(context, stages);
  Tensor pattern =
      bias ? causal_softmax_by_distance(context.content_scores, bias->table, bias->distances.steps, context.first_row)
           : pattern_of(logits_of(context, stages), context, stages);
  pattern = probe("pattern", pattern);  // [b h i j]
  if (dropping) pattern = dropout(pattern, dropping->probability, dropping->stream, whole);
  Tensor output = matmul(pattern, context.value);  // [b h i d]
  for (const auto& stage : stages.mixes) {
    const StageScope scope(*stage.path);
    output = output + stage.scheme->mix(pattern, stage.at(context));
  }
  return output;
}

const Executor& reference_executor() {
  static const ReferenceExecutor executor;
  return executor;
}

}  // namespace whence
