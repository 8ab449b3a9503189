// Attention in the equations of the papers: one op per step, every intermediate named, all rows at once.
#include <cmath>

#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/attention/executor.h"
#include "nn/attention/key_heads.h"
#include "nn/layer_forms.h"

namespace whence {
namespace {

class ReferenceExecutor final : public Executor {
 public:
  const char* name() const override { return "reference"; }
  std::string refusal(const Stages&) const override { return {}; }
  Fit fit(const AttendCall&) const override { return Fit::suits; }

  Tensor attend(const AttendInputs& inputs, const Stages& stages) const override {
    const index_t first_row = inputs.sequence.first_row;
    return attend_rows(rotated_context(heads_apart(inputs), stages), stages, inputs.dropout,
        {first_row, first_row + inputs.query.size(2), inputs.key.size(2)});
  }
};

// Returns S, [b h i j].
Tensor scores_of(const AttendContext& context, const Stages& stages) {
  if (stages.scores.empty())
    return matmul_by_group(context.query, transpose(context.key), context.scale);  // q.k / sqrt(d)
  const auto& stage = stages.scores[0];
  const StageScope scope(*stage.path);
  return stage.scheme->scores(stage.at(context));
}

// Returns the scores after the schemes' biases, transforms and maps.
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
  if (stages.patterns.empty()) return forms_on(logits.device()).softmax_of_visible(logits, context);
  const auto& stage = stages.patterns[0];
  const StageScope scope(*stage.path);
  return stage.scheme->pattern(logits, stage.at(context));
}

}  // namespace

AttendInputs heads_apart(AttendInputs inputs) {
  const auto [query, key, value] = forms_on(inputs.query.device()).apart({inputs.query, inputs.key, inputs.value});
  inputs.query = query, inputs.key = key, inputs.value = value;
  return inputs;
}

AttendContext rotated_context(const AttendInputs& given, const Stages& stages) {
  // Rotations need contiguous rows; a cache has them already.
  const bool as_given = stages.rotates.empty() || given.sequence.row.defined();
  const AttendInputs inputs = as_given ? given : heads_apart(given);
  AttendContext context;
  static_cast<Sequence&>(context) = inputs.sequence.on(inputs.query.device());
  context.window = Stages::narrower(context.window, stages.window);
  context.x = inputs.x;
  context.query = context.unrotated_query = probe("q", inputs.query);
  context.key = probe("k", inputs.key);
  context.value = probe("v", inputs.value);
  context.scale = inputs.scale.value_or(1 / std::sqrt(static_cast<double>(inputs.query.size(-1))));
  const bool every = context.row.defined() && !stages.rotates.empty();
  AttendContext rotated = context;
  if (every) {  // rotated at every position; the device picks its own
    static_cast<Sequence&>(rotated) = context.of_all_rows();
    const Shape& one = context.query.shape();
    rotated.query = rotated.unrotated_query = expand(context.query, {one[0], one[1], context.keys, one[3]});
  }
  for (const auto& stage : stages.rotates) {
    const StageScope scope(*stage.path);
    stage.scheme->rotate(rotated.query, rotated.key, stage.at(rotated));
  }
  context.query = every ? context.own_rows(rotated.query, 2) : rotated.query, context.key = rotated.key;
  return context;
}

Tensor attend_rows(
    AttendContext context, const Stages& stages, const std::optional<PatternDropout>& dropping, const StripOf& whole) {
  context.content_scores = probe("scores", scores_of(context, stages));
  const std::optional<Tensor> at_once = forms_on(context.device).pattern_at_once(context, stages);
  Tensor pattern = probe("pattern", at_once ? *at_once : pattern_of(logits_of(context, stages), context, stages));
  if (dropping) pattern = dropout(pattern, dropping->probability, dropping->stream, whole);
  Tensor output = matmul_by_group(pattern, context.value);  // [b h i d]
  for (const auto& stage : stages.mixes) {
    const StageScope scope(*stage.path);
    output = output + stage.scheme->mix(pattern, stage.at(context));
  }
  return output_of(std::move(output), context, stages);
}

Tensor output_of(Tensor output, const AttendContext& context, const Stages& stages) {
  for (const auto& stage : stages.outputs) {
    const StageScope scope(*stage.path);
    output = stage.scheme->map_output(output, stage.at(context));
  }
  return output;
}

const Executor& reference_executor() {
  static const ReferenceExecutor executor;
  return executor;
}

}  // namespace whence
