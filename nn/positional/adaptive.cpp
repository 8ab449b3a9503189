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

Tensor Adaptive::base_bias(const AttendContext& context, Site site) const {
  Tensor total;
  for (const auto& stage : inner_.biases) {
    const StageScope scope(*stage.path);
    const Tensor bias = stage.scheme->bias(stage.at(context));
    total = total.defined() ? add(total, bias, site) : bias;
  }
  return total;
}

std::optional<BiasTable> Adaptive::base_table(const AttendContext& context) const {
  std::optional<BiasTable> base;
  if (has_bias())
    base = table_of(inner_.biases, context);
  else if (const std::optional<Distances> distances = whole_distances(context))
    base = BiasTable{*distances, {}};
  return base && base->distances.diagonal ? base : std::nullopt;
}

bool Adaptive::add_network(TileTerms& terms, const Distances& distances, const Network& network) {
  if (terms.mix) return false;
  terms.mix = {{}, network.hidden, network.table, network.output};
  TiledMix& mix = terms.mix->facts;
  mix.left = network.left, mix.right = network.right, mix.table_lowest = distances.steps.lowest - network.right;
  mix.behind = network.behind, mix.remask = network.remask;
  const index_t heads = network.output_bias.size(0), count = distances.values.size(0);
  return terms.add_by_distance(distances, expand(reshape(network.output_bias, {heads, 1}), {heads, count}));
}

Tensor Adaptive::channels(const Tensor& scores, const Tensor& bias, Site site) {
  return concat_along(1, {scores, expand(bias, scores.shape(), site)}, site);  // [b 2h i j]
}

}  // namespace whence
