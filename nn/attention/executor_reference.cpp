// Attention in the equations of the papers: one op per step, every intermediate named, all rows at once.
#include <cmath>

#include "nn/attention/attend.h"
#include "nn/attention/heads.h"

namespace whence {

Tensor attend_by_reference(const AttendInputs& inputs, const Stages& stages) {
  const index_t first_row = inputs.sequence.first_row;
  return attend_rows(rotated_context(inputs, stages), stages, inputs.dropout,
      {first_row, first_row + inputs.query.size(2), inputs.key.size(2)});
}

// Calls f(scheme, context) for each scheme of a stage, within its scope.
template <class Interface, class F>
static void run_stage(const std::vector<StageOf<Interface>>& stage, const AttendContext& context, const F& f) {
  for (const auto& part : stage) {
    const StageScope scope(*part.path);
    f(*part.scheme, part.at(context));
  }
}

AttendContext rotated_context(const AttendInputs& inputs, const Stages& stages) {
  AttendContext context;
  static_cast<Sequence&>(context) = inputs.sequence.on(inputs.query.device());
  context.window = Stages::narrower(context.window, stages.window);
  context.x = inputs.x;
  context.query = context.unrotated_query = probe("q", inputs.query);
  context.key = probe("k", inputs.key);
  context.value = probe("v", inputs.value);
  context.scale = inputs.scale.value_or(1 / std::sqrt(static_cast<double>(inputs.query.size(-1))));
  run_stage(stages.rotates, context,
      [&](const auto& scheme, const AttendContext& at) { scheme.rotate(context.query, context.key, at); });
  return context;
}

Tensor attend_rows(
    AttendContext context, const Stages& stages, const std::optional<PatternDropout>& dropping, const StripOf& whole) {
  Tensor scores;
  if (stages.scores.empty()) scores = matmul_by_group(context.query, transpose(context.key), context.scale);
  run_stage(stages.scores, context, [&](const auto& scheme, const AttendContext& at) { scores = scheme.scores(at); });
  context.content_scores = probe("scores", scores);  // S = q.k / sqrt(d), [b h i j]

  run_stage(stages.biases, context, [&](const auto& scheme, const AttendContext& at) {
    const Tensor bias = scheme.bias(at);  // [1|b h i j]
    context.bias = context.bias.defined() ? context.bias + bias : bias;
  });
  Tensor pairs = context.bias.defined() ? context.content_scores + context.bias : context.content_scores;
  run_stage(stages.transforms, context,
      [&](const auto& scheme, const AttendContext& at) { pairs = scheme.transform_scores(pairs, at); });
  run_stage(
      stages.maps, context, [&](const auto& scheme, const AttendContext& at) { pairs = scheme.map_scores(pairs, at); });
  pairs = probe("logits", pairs);  // A
  if (stages.patterns.empty()) pairs = softmax(pairs, context.mask());
  run_stage(stages.patterns, context,
      [&](const auto& scheme, const AttendContext& at) { pairs = scheme.pattern(pairs, at); });
  pairs = probe("pattern", pairs);  // P
  if (dropping) pairs = dropout(pairs, dropping->probability, dropping->stream, whole);

  Tensor output = matmul_by_group(pairs, context.value);  // o = P v, [b h i d]
  run_stage(stages.mixes, context,
      [&](const auto& scheme, const AttendContext& at) { output = output + scheme.mix(pairs, at); });
  return output_of(output, context, stages);
}

Tensor output_of(Tensor output, const AttendContext& context, const Stages& stages) {
  run_stage(stages.outputs, context,
      [&](const auto& scheme, const AttendContext& at) { output = scheme.map_output(output, at); });
  return output;
}

}  // namespace whence
