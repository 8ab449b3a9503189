#include "nn/positional/adaptive.h"

#include "autograd/observer.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "tensor/error.h"
#include "tensor/kernels.h"
#include "tensor/raw.h"

namespace whence {

Adaptive::Adaptive(const char* name, const SchemeArguments& arguments) : base_(arguments.base()) {
  for (const SchemeSpec* each = arguments.spec().base(); each; each = each->base())
    if (each->given().contains("table"))
      refuse_scheme(arguments.spec().text(), "table given inside; each layer has a base of its own; leave it out");
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

namespace {

// {W1 of the channels of pairs, u, the table by distance}
struct MixTerms {
  static constexpr const char* name = "mix_terms";
  static constexpr bool once = true;
  MixNetwork at;
  DType dtype;    // of the model
  index_t count;  // distances
  struct Saved {
    SavedTensor table, input, bias, output_bias;
  };
  std::array<Tensor, 3> forward(
      Saved& saved, const Tensor& given, const Tensor& input, const Tensor& bias, const Tensor& output_bias) const {
    const Tensor table = given.defined() ? raw::contiguous(given) : given, w1 = raw::contiguous(input);
    if (table.defined()) saved.table.as(table, given);
    saved.input.as(w1, input), saved.bias = bias, saved.output_bias = output_bias;
    const auto sums = [&](const Shape& shape) { return Tensor::empty(shape, compute_dtype(dtype), input.device()); };
    const std::array made{Tensor::like(input, {input.size(0), at.pairs, input.size(2)}),
        sums({at.left + 1, input.size(0), at.right + count}), sums({at.heads, count})};
    kernels(input).mix_terms(at, dtype, table, w1, bias, output_bias, made[0], made[1], made[2]);
    return made;
  }
  Grads<4> backward(const Saved& saved, std::span<const Tensor, 3> dy, Needs<4> needs) const {
    const Tensor table = saved.table.defined() ? saved.table.get() : Tensor(), input = saved.input.get();
    const std::array of{table, input, saved.bias.get(), saved.output_bias.get()};
    Grads<4> d;
    for (std::size_t k = 0; k < d.size(); ++k)
      if (needs[k] && of[k].defined()) d[k] = Tensor::like(of[k]);
    const auto read = [](const Tensor& x) { return x.defined() ? raw::contiguous(x) : x; };
    kernels(input).mix_terms_backward(
        at, dtype, table, input, read(dy[0]), read(dy[1]), read(dy[2]), d[0], d[1], d[2], d[3]);
    return d;
  }
};

}  // namespace

bool Adaptive::add_made(
    TileTerms& terms, const TileTerms& base, const Tensor& w1, const Tensor& b1, const Network& network) {
  const Tensor& query = terms.operands[TiledOperands::query];
  if (!kernels(query).makes_terms() || !kernels(w1).makes_terms()) return false;
  const index_t heads = query.size(1), pairs = base.has(TiledOperands::piece_begins) ? 2 * heads : heads;
  Network made = network;
  const std::array operands = apply(
      MixTerms{{made.left, made.right, heads, pairs, made.adds_base}, query.dtype(), base.distances->values.size(0)},
      Site::current(), base.operands[TiledOperands::distance_table], w1, b1, made.output_bias);
  made.hidden = operands[0], made.table = operands[1], made.added = operands[2];
  add_network(terms, base, made);
  return true;
}

void Adaptive::add_network(TileTerms& terms, const TileTerms& base, const Network& network) {
  if (!network.added.defined() && network.adds_base && base.has(TiledOperands::distance_table))
    terms.add(TiledOperands::distance_table, exact(base.operands[TiledOperands::distance_table]));
  for (std::size_t k = TiledOperands::piece_distance; k <= TiledOperands::piece_offsets; ++k)
    if (base.operands[k].defined()) terms.add(static_cast<TiledOperands::Operand>(k), base.operands[k]);
  terms.add(TiledOperands::mix_input, network.hidden), terms.add(TiledOperands::mix_table, network.table);
  terms.add(TiledOperands::mix_output, network.output);
  terms.at.mixes = true, terms.at.adds_pieces = network.adds_base, terms.at.remask = network.remask;
  terms.at.left = network.left, terms.at.right = network.right, terms.at.behind = network.behind;
  terms.at.table_lowest = terms.at.lowest - network.right;
  if (network.added.defined()) return terms.add(TiledOperands::distance_table, network.added);
  const index_t heads = network.output_bias.size(0), count = base.distances->values.size(0);
  terms.add(TiledOperands::distance_table, expand(reshape(exact(network.output_bias), {heads, 1}), {heads, count}));
}

Tensor Adaptive::channels(const Tensor& scores, const Tensor& bias, Site site) {
  return concat_along(1, {scores, expand(bias, scores.shape(), site)}, site);  // [b 2h i j]
}

}  // namespace whence
