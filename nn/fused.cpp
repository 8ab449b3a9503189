// The forms of layers that a GPU runs: fewer kernels, by the ops of autograd/joined/joined_ops.h.
#include "autograd/joined/joined_ops.h"
#include "autograd/observer.h"
#include "nn/attention/by_distance.h"
#include "nn/attention/choice.h"
#include "nn/layer_forms.h"

namespace whence {
namespace {

// True if only causality hides keys: kernels then need no mask.
bool causal_by_fact(const Sequence& sequence) {
  return sequence.causal && !sequence.row.defined() && sequence.window == 0 && !sequence.present.defined() &&
         !sequence.given_mask.defined();
}

struct FusedForms final : LayerForms {
  // One kernel for both in each direction.
  SumAndNorm add_then_norm(const Tensor& x, const Tensor& added, const Norm& norm, Site site) const override {
    const Scope scope(norm.path());
    return add_norm(x, added, norm.weight(), norm.bias(), norm.epsilon(), site);
  }

  // One large product instead of three.
  Heads project(const Tensor& x, const Linear& query, const Linear& key, const Linear& value, index_t heads,
      Site site) const override {
    const auto both = [](const Linear& layer) { return Projection{layer.weight(), layer.bias()}; };
    const auto [q, k, v] = project_heads(x, both(query), both(key), both(value), heads, site);
    return {q, k, v};
  }
  // If each head is contiguous, one call multiplies all heads.
  Heads apart(const Heads& heads, Site site) const override {
    const auto& [query, key, value] = heads;
    if (query.is_contiguous() && key.is_contiguous() && value.is_contiguous()) return heads;
    const auto [q, k, v] = contiguous_all({query, key, value}, site);
    return {q, k, v};
  }

  Tensor softmax_of_visible(const Tensor& logits, const Sequence& sequence, Site site) const override {
    return causal_by_fact(sequence) ? causal_softmax(logits, sequence.first_row, site)
                                    : LayerForms::softmax_of_visible(logits, sequence, site);
  }

  // The softmax kernel reads one table, the sum of all biases.
  std::optional<Tensor> pattern_at_once(const AttendContext& context, const Stages& stages) const override {
    const bool alone = stages.transforms.empty() && stages.maps.empty() && stages.patterns.empty();
    if (!alone || !causal_by_fact(context) || pairs_are_watched()) return std::nullopt;
    std::optional<Distances> distances;
    Tensor table;  // [h n], the sum of all biases; different positions of tokens cannot be summed
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

  // In 16 bits GELU is fused into the first product. Backward computes its derivative and the bias gradient in one
  // pass.
  Tensor feed_forward(const MLP& mlp, const Tensor& x, const Pass& pass, Site site) const override {
    if (!mlp.is_gelu_alone(pass) || is_watched_under(mlp.path())) return mlp(x, pass, site);
    const Scope scope(mlp.path());
    return linear_gelu_linear(x, mlp.in().weight(), mlp.in().bias(), mlp.out().weight(), mlp.out().bias(), site);
  }
};

const FusedForms forms;
[[maybe_unused]] const bool registered = (detail::fused_forms = &forms, true);

}  // namespace
}  // namespace whence
