#include "nn/fused.h"

#include "autograd/inspect/probe.h"
#include "nn/attention/by_distance.h"
#include "nn/attention/executor.h"
#include "nn/attention/layer_input.h"

namespace whence {

// A mask by causality alone is a fact that kernels go by.
static bool causal_by_fact(const Sequence& sequence) {
  return sequence.device.is_gpu() && sequence.causal && sequence.window == 0 && !sequence.present.defined() &&
         !sequence.given_mask.defined();
}

// One kernel each way for both.
SumAndNorm add_then_norm(const Tensor& x, const Tensor& added, const Norm& norm, Site site) {
  if (x.device().is_gpu()) {
    const Scope scope(norm.path());
    return add_norm(x, added, norm.weight(), norm.bias(), norm.epsilon(), site);
  }
  const Tensor sum = add(x, added, site);
  return {sum, norm(sum, site)};
}

// One large product for three; and where the numbers of each head lie by themselves, one call multiplies all heads.
Heads project(const Tensor& x, const Linear& query, const Linear& key, const Linear& value, index_t heads, Site site) {
  if (x.device().is_gpu()) {
    const auto both = [](const Linear& layer) { return Projection{layer.weight(), layer.bias()}; };
    return project_heads(x, both(query), both(key), both(value), heads, site);
  }
  const auto of_heads = [&](const Linear& layer) { return by_head(layer(x, site), heads); };  // [b h t d]
  return {of_heads(query), of_heads(key), of_heads(value)};
}

Tensor softmax_of_visible(const Tensor& logits, const Sequence& sequence) {
  return causal_by_fact(sequence) ? causal_softmax(logits, sequence.first_row) : softmax(logits, sequence.mask());
}

std::optional<Tensor> pattern_at_once(const AttendContext& context, const Stages& stages) {
  const bool alone = stages.transforms.empty() && stages.maps.empty() && stages.patterns.empty();
  if (!alone || !causal_by_fact(context) || pairs_are_watched()) return std::nullopt;
  std::optional<Distances> distances;
  Tensor table;  // [h n], the sum of all biases; they cannot be added where their tokens stand at different positions
  for (const auto& stage : stages.biases) {
    const auto* scheme = dynamic_cast<const ReadsByDistance*>(stage.scheme);
    if (!scheme) return std::nullopt;
    const StageScope scope(*stage.path);
    const AttendContext moved = stage.at(context);
    const std::optional<Distances> own = whole_distances(moved);
    if (!own || (distances && !own->reads_as(*distances))) return std::nullopt;
    const std::optional<Tensor> numbers = scheme->table(own->values, moved);
    if (!numbers) return std::nullopt;
    table = distances ? table + *numbers : *numbers;
    distances = own;
  }
  if (!distances) return std::nullopt;
  return causal_softmax_by_distance(context.content_scores, table, distances->steps, context.first_row);
}

// In 16 bit GELU is inside the first product. Backward takes its derivative and the bias's gradient in one pass.
Tensor feed_forward(const MLP& mlp, const Tensor& x, const Pass& pass, Site site) {
  if (!x.device().is_gpu() || !mlp.is_gelu_alone(pass) || Capture::wants_under(mlp.path())) return mlp(x, pass, site);
  const Scope scope(mlp.path());
  return linear_gelu_linear(x, mlp.in().weight(), mlp.in().bias(), mlp.out().weight(), mlp.out().bias(), site);
}

}  // namespace whence
