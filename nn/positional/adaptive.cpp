#include "nn/positional/adaptive.h"

#include "autograd/observer.h"
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

std::optional<TileTerms> Adaptive::base_terms(TileTerms& terms, const AttendContext& context) const {
  std::optional<TileTerms> base(context);
  for (const auto& stage : inner_.biases) {
    const StageScope scope(*stage.path);
    if (const auto* scheme = dynamic_cast<const RunsInTiles*>(stage.scheme))
      scheme->add_to_tiles(*base, stage.at(context));
    else
      base->refuse("a base without a tile program given; one by distance required");
  }
  if (!has_bias()) (void)base->read(whole_distances(context));
  for (std::size_t k = 0; k < base->operands.size(); ++k)
    if (base->operands[k].defined() && !(TiledCall::info[k].ops & TiledCall::mix))
      base->refuse(to_text(TiledCall::info[k].name, " given, which is not read here; undefined required"));
  if (!base->refused.empty()) terms.refuse(base->refused);
  return terms.read(base->distances) ? std::move(base) : std::nullopt;
}

Tensor Adaptive::exact(const Tensor& x) { return cast(x, compute_dtype(x.dtype())); }

void Adaptive::add_network(TileTerms& terms, const TileTerms& base, const Network& network) {
  if (network.adds_base && base.has(TiledOperands::distance_table))
    terms.add(TiledOperands::distance_table, exact(base.operands[TiledOperands::distance_table]));
  for (std::size_t k = TiledOperands::piece_distance; k <= TiledOperands::piece_offsets; ++k)
    if (base.operands[k].defined()) terms.add(static_cast<TiledOperands::Operand>(k), base.operands[k]);
  terms.add(TiledOperands::mix_input, network.hidden), terms.add(TiledOperands::mix_table, network.table);
  terms.add(TiledOperands::mix_output, network.output);
  terms.at.mixes = true, terms.at.adds_pieces = network.adds_base, terms.at.remask = network.remask;
  terms.at.left = network.left, terms.at.right = network.right, terms.at.behind = network.behind;
  terms.at.table_lowest = terms.at.lowest - network.right;
  const index_t heads = network.output_bias.size(0), count = base.distances->values.size(0);
  terms.add(TiledOperands::distance_table, expand(reshape(exact(network.output_bias), {heads, 1}), {heads, count}));
}

Tensor Adaptive::channels(const Tensor& scores, const Tensor& bias, Site site) {
  return concat_along(1, {scores, expand(bias, scores.shape(), site)}, site);  // [b 2h i j]
}

}  // namespace whence
