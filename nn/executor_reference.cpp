// Attention as the papers write it: one op per step, every intermediate named, all rows at once.
#include <cmath>

#include "autograd/ops.h"
#include "autograd/probe.h"
#include "nn/executor.h"

namespace whence {
namespace {

class ReferenceExecutor final : public Executor {
 public:
  const char* name() const override { return "reference"; }
  std::string refusal(const Stages&) const override { return {}; }

  Tensor attend_finite(const AttendInputs& inputs, const Stages& stages) const override {
    return attend_rows(
        rotated_context(inputs, stages), stages, inputs.dropout, inputs.sequence.first_row + inputs.query.size(2));
  }
};

Tensor pattern_of(const Tensor& logits, const AttendContext& at, const Stages& stages) {
  if (stages.patterns.empty()) {  // masked keys get exactly 0
    const bool by_fact = at.device.is_gpu() && at.causal && !at.present.defined() && !at.given_mask.defined();
    return by_fact ? causal_softmax(logits, at.first_row) : softmax(logits, at.mask());
  }
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
    AttendContext at, const Stages& stages, const std::optional<PatternDropout>& dropping, index_t total_rows) {
  at.content_scores = probe("scores", matmul(at.query, transpose(at.key), at.scale));  // S = q.k / sqrt(d), [b h i j]
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
  logits = probe("logits", logits);
  Tensor pattern = probe("pattern", pattern_of(logits, at, stages));  // [b h i j]
  if (dropping) pattern = dropout(pattern, dropping->probability, dropping->stream, {at.first_row, total_rows});
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
