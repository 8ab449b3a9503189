#include "nn/positional/adaptive.h"

#include "autograd/inspect/probe.h"
#include "autograd/ops.h"
#include "tensor/error.h"

namespace whence {

Adaptive::Adaptive(const char* name, std::unique_ptr<PositionalScheme> base) : base_(std::move(base)) {
  child("base", *base_);
  base_->join(inner_);
  const char* const does = !inner_.embeds.empty()       ? "embeds tokens"
                           : !inner_.transforms.empty() ? "transforms scores"
                           : !inner_.maps.empty()       ? "maps scores itself"
                           : !inner_.patterns.empty()   ? "stands for the softmax"
                           : !inner_.mixes.empty()      ? "adds to the values"
                                                        : nullptr;
  if (!does) return;
  throw InputError(name, ": the scheme inside ", does,
      "; one that only rotates or biases is required (none, rope, alibi, ...); write the other "
      "one as a sum, as in absolute + ",
      name, "(none)");
}

void Adaptive::join(Stages& stages) const {
  stages.rotates.insert(stages.rotates.end(), inner_.rotates.begin(), inner_.rotates.end());
  stages.enter(*this);
}

Tensor Adaptive::base_bias(const AttendContext& at, Site here) const {
  Tensor total;
  for (const auto& stage : inner_.biases) {
    const StageScope scope(*stage.path);
    const Tensor bias = stage.scheme->bias(stage.at(at));
    total = total.defined() ? add(total, bias, here) : bias;
  }
  return total;
}

std::optional<Adaptive::BaseTable> Adaptive::base_table(const AttendContext& at) const {
  const std::optional<DistanceSteps> steps = distance_steps(at);
  if (!steps || !steps->plain) return std::nullopt;
  if (!has_bias()) return BaseTable{*steps, {}};
  TileTerms terms(at);
  for (const auto& stage : inner_.tiled) {
    const StageScope scope(*stage.path);
    if (!stage.scheme->add_to_tiles(terms, stage.at(at))) return std::nullopt;
  }
  if (terms.mix) return std::nullopt;
  TiledAttention::Operands without = terms.operands;
  for (const auto expected :
      {TiledAttention::query, TiledAttention::key, TiledAttention::value, TiledAttention::distance_table})
    without[expected] = Tensor();
  for (const Tensor& other : without)
    if (other.defined()) return std::nullopt;
  const Tensor& table = terms[TiledAttention::distance_table];
  if (inner_.tiled.size() != inner_.biases.size() || terms.facts.bins > 0 || terms.facts.query_step.defined() ||
      table.size(1) != steps->values.size(0) || terms.facts.lowest != steps->lowest)
    return std::nullopt;
  return BaseTable{*steps, table};
}

bool Adaptive::add_network(TileTerms& terms, const DistanceSteps& steps, const Network& network) {
  if (terms.mix) return false;
  terms.mix = {{}, network.hidden, network.table, network.output};
  TiledMix& mix = terms.mix->facts;
  mix.left = network.left, mix.right = network.right, mix.table_lowest = steps.lowest - network.right;
  mix.behind = network.behind, mix.remask = network.remask;
  const index_t heads = network.output_bias.size(0), count = steps.values.size(0);
  return terms.add_by_distance(steps, expand(reshape(network.output_bias, {heads, 1}), {heads, count}));
}

Tensor Adaptive::channels(const Tensor& scores, const Tensor& bias, Site here) {
  return concat_along(1, {scores, expand(bias, scores.shape(), here)}, here);  // [b 2h i j]
}

}  // namespace whence
