#include "nn/positional/adaptive.h"

#include "autograd/inspect/probe.h"
#include "autograd/ops.h"
#include "tensor/error.h"

namespace whence {

Adaptive::Adaptive(const char* name, std::unique_ptr<PositionalScheme> base) : base_(std::move(base)) {
  child("base", *base_);
  base_->join(inner_);
  const char* const does = !inner_.embeds.empty()       ? "embeds tokens"
                           : !inner_.scores.empty()     ? "makes scores"
                           : !inner_.transforms.empty() ? "transforms scores"
                           : !inner_.maps.empty()       ? "maps scores itself"
                           : !inner_.patterns.empty()   ? "stands for the softmax"
                           : !inner_.mixes.empty()      ? "adds to the values"
                           : !inner_.outputs.empty()    ? "maps the output"
                           : inner_.window > 0          ? "hides what lies far away"
                                                        : nullptr;
  if (!does) return;
  throw InputError(name, ": the scheme inside ", does,
      "; one that only rotates or biases is required (none, rope, alibi, ...); write the other "
      "one as a sum, as in absolute + ",
      name, "(none), or around, as in window(", name, "(none))");
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

std::optional<TileTerms> Adaptive::base_terms(const AttendContext& context) const {
  TileTerms base(context);
  for (const auto& stage : inner_.biases) {
    const auto* scheme = dynamic_cast<const RunsInTiles*>(stage.scheme);
    const StageScope scope(*stage.path);
    if (!scheme || !scheme->add_to_tiles(base, stage.at(context))) return std::nullopt;
  }
  const std::optional<Distances> distances = has_bias() ? base.distances() : whole_distances(context);
  if (!distances || !distances->diagonal || !base.read_steps(*distances) || base.facts.bins > 0) return std::nullopt;
  return base.has_more_than_pieces() ? std::nullopt : std::optional(base);
}

bool Adaptive::add_network(TileTerms& terms, const TileTerms& base, const Network& network) {
  const Distances& distances = *base.distances();
  const Tensor& table = base.operands[TiledAttention::distance_table];
  if (terms.mix || terms.has(TiledMix::piece_begins)) return false;
  if (network.adds_base && table.defined() && !terms.add_by_distance(distances, table)) return false;
  for (std::size_t k = TiledMix::piece_distance; k <= TiledMix::piece_offsets; ++k)
    terms.operands[k] = base.operands[k];
  terms[TiledMix::mix_input] = network.hidden, terms[TiledMix::mix_table] = network.table;
  terms[TiledMix::mix_output] = network.output;
  TiledMix& mix = terms.mix.emplace();
  mix.adds_pieces = network.adds_base;
  mix.left = network.left, mix.right = network.right, mix.table_lowest = distances.steps.lowest - network.right;
  mix.behind = network.behind, mix.remask = network.remask;
  const index_t heads = network.output_bias.size(0), count = distances.values.size(0);
  return terms.add_by_distance(distances, expand(reshape(network.output_bias, {heads, 1}), {heads, count}));
}

Tensor Adaptive::channels(const Tensor& scores, const Tensor& bias, Site site) {
  return concat_along(1, {scores, expand(bias, scores.shape(), site)}, site);  // [b 2h i j]
}

}  // namespace whence
