// Attention as the papers write it: one op per step, every intermediate named, all rows at once.
#include <cmath>

#include "autograd/inspect/probe.h"
#include "autograd/ops.h"
#include "nn/attention/executor.h"
#include "nn/positional/distance_bias.h"

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
bool by_fact(const AttendContext& at) {
  return at.device.is_gpu() && at.causal && !at.present.defined() && !at.given_mask.defined();
}

// Where all that is added to the scores is read by distance and nothing else happens to them: the one table of it,
// which softmax reads itself, so that no tensor of pairs is made of it.
std::optional<DistanceTable> table_for_softmax(const AttendContext& at, const Stages& stages) {
  const bool alone = stages.transforms.empty() && stages.maps.empty() && stages.patterns.empty();
  if (!alone || stages.biases.empty() || !by_fact(at) || pairs_are_watched()) return std::nullopt;
  std::optional<DistanceTable> all;
  for (const auto& stage : stages.biases) {
    const auto* scheme = dynamic_cast<const DistanceBias*>(stage.scheme);
    if (!scheme) return std::nullopt;
    const StageScope scope(*stage.path);
    std::optional<DistanceTable> one = scheme->table(stage.at(at));
    if (!one || (all && !one->steps.reads_as(all->steps))) return std::nullopt;
    if (all) one->values = all->values + one->values;
    all = one;
  }
  return all;
}

// The scores with all that schemes make of them.
Tensor logits_of(AttendContext& at, const Stages& stages) {
  for (const auto& stage : stages.biases) {
    const StageScope scope(*stage.path);
    const Tensor bias = stage.scheme->bias(stage.at(at));
    at.bias = at.bias.defined() ? at.bias + bias : bias;  // [1|b h i j]
  }
  Tensor logits = at.bias.defined() ? at.content_scores + at.bias : at.content_scores;
  for (const auto& stage : stages.transforms) {
    const StageScope scope(*stage.path);
    logits = stage.scheme->transform_scores(logits, stage.at(at));
  }
  for (const auto& stage : stages.maps) {
    const StageScope scope(*stage.path);
    logits = stage.scheme->map_scores(logits, stage.at(at));
  }
  return probe("logits", logits);
}

Tensor pattern_of(const Tensor& logits, const AttendContext& at, const Stages& stages) {
  if (stages.patterns.empty())  // masked keys get exactly 0
    return by_fact(at) ? causal_softmax(logits, at.first_row) : softmax(logits, at.mask());
  const auto& stage = stages.patterns[0];
  const StageScope scope(*stage.path);
  return stage.scheme->pattern(logits, stage.at(at));
}

}  // namespace

AttendContext rotated_context(const AttendInputs& inputs, const Stages& stages) {
  AttendContext at;
  static_cast<Sequence&>(at) = inputs.sequence.on(inputs.query.device());
  at.x = inputs.x;
  at.query = at.unrotated_query = probe("q", inputs.query);
  at.key = probe("k", inputs.key);
  at.value = probe("v", inputs.value);
  at.scale = inputs.scale.value_or(1 / std::sqrt(static_cast<double>(inputs.query.size(-1))));
  for (const auto& stage : stages.rotates) {
    const StageScope scope(*stage.path);
    stage.scheme->rotate(at.query, at.key, stage.moved(at.positions));
  }
  return at;
}

Tensor attend_rows(
    AttendContext at, const Stages& stages, const std::optional<PatternDropout>& dropping, const StripOf& whole) {
  at.content_scores = probe("scores", matmul(at.query, transpose(at.key), at.scale));  // S = q.k / sqrt(d), [b h i j]
  const std::optional<DistanceTable> table = table_for_softmax(at, stages);
  Tensor pattern = table ? causal_softmax_by_distance(at.content_scores, table->values, table->steps, at.first_row)
                         : pattern_of(logits_of(at, stages), at, stages);
  pattern = probe("pattern", pattern);  // [b h i j]
  if (dropping) pattern = dropout(pattern, dropping->probability, dropping->stream, whole);
  Tensor output = matmul(pattern, at.value);  // [b h i d]
  for (const auto& stage : stages.mixes) {
    const StageScope scope(*stage.path);
    output = output + stage.scheme->mix(pattern, stage.at(at));
  }
  return output;
}

const Executor& reference_executor() {
  static const ReferenceExecutor executor;
  return executor;
}

}  // namespace whence
