// The transformer: checks of its options, the modules that it is made of, a block (attention, MLP, norms before, after or in
// parallel), and operator(): tokens -> embedding -> blocks -> norm -> logits.
#include "nn/transformer.h"

#include <cmath>
#include <utility>

#include "autograd/observer.h"
#include "autograd/ops.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {
namespace {

const TransformerOptions& checked(const TransformerOptions& options) {
  for (const auto& [name, value] : {std::pair{"vocabulary", options.vocabulary}, std::pair{"length", options.length},
           std::pair{"dim", options.dim}, std::pair{"layers", options.layers}, std::pair{"heads", options.heads}})
    if (value < 1) throw InputError("transformer: ", name, " ", value, " given; 1 or more required");
  for (const auto& [name, value] : {std::pair{"outputs", options.outputs}, std::pair{"hidden", options.hidden}})
    if (value < 0) throw InputError("transformer: ", name, " ", value, " given; 0 or more required");
  if (options.tied && options.outputs && options.outputs != options.vocabulary) {
    throw InputError("transformer: ", options.outputs, " outputs of a vocabulary of ", options.vocabulary,
        " given; tied logits have one per token of the vocabulary");
  }
  return options;
}

SchemeSizes sizes_of(const TransformerOptions& options) {
  return {options.dim, options.heads, options.length, 0, options.kv_heads};
}

// Refuses schemes in an encoder that require a causal mask.
std::vector<SchemeSpec> checked_schemes(const TransformerOptions& options) {
  std::vector<SchemeSpec> specs = parse_schemes(options.scheme);
  for (const SchemeSpec& spec : specs) {
    if (!options.causal && spec.make(sizes_of(options))->claims().causal_only) {
      throw InputError("transformer: ", spec.text(),
          " in a model that is not causal given; it has no meaning without a causal mask; ", "choose another scheme");
    }
  }
  return specs;
}

index_t hidden_of(const TransformerOptions& options) { return options.hidden ? options.hidden : 4 * options.dim; }

Inits inits_of(const TransformerOptions& options) {
  return inits_of(options.initialisation, options.dim, hidden_of(options), options.layers);
}

AttentionOptions attention_options(const TransformerOptions& options, index_t layer) {
  const Inits inits = inits_of(options);
  return {.dim = options.dim,
      .heads = options.heads,
      .length = options.length,
      .layer = layer,
      .kv_heads = options.kv_heads,
      .executor = options.executor,
      .dropout = options.dropout,
      .pattern_dropout = options.pattern_dropout,
      .bias = options.bias && options.attention_bias,
      .in = inits.in,
      .out = inits.attention_out,
      .bias_init = inits.bias};
}

MLPOptions mlp_options(const TransformerOptions& options) {
  const Inits inits = inits_of(options);
  return {.dim = options.dim,
      .hidden = hidden_of(options),
      .activation = options.activation,
      .in = inits.in,
      .out = inits.mlp_out,
      .bias_init = inits.bias,
      .bias = options.bias,
      .dropout = options.hidden_dropout};
}

}  // namespace

const std::vector<ProbeInfo>& block_probes() {
  static const std::vector<ProbeInfo> probes{
      {"residual", "b t c", "the residual stream that the layer hands on", "x + attention + MLP"}};
  return probes;
}

Block::Block(const TransformerOptions& options, index_t layer, const std::vector<SchemeSpec>& specs,
    const std::vector<const PositionalScheme*>& shared)
    : place_(options.norm_place),
      norm1_(options.dim, options.norm),
      norm2_(options.dim, options.norm),
      attention_(attention_options(options, layer), specs, shared),
      mlp_(mlp_options(options)),
      dropout_(options.dropout) {
  child("norm1", norm1_);
  child("attention", attention_);
  child("norm2", norm2_);
  child("mlp", mlp_);
  child("dropout", dropout_);
}

Residual Block::operator()(
    const Residual& given, const Sequence& sequence, const Pass& pass, AttentionCache* cache) const {
  const Scope scope(path());
  const auto attention = [&](const Tensor& from) { return attention_(from, sequence, pass, cache); };
  const auto mlp = [&](const Tensor& from) { return dropout_(mlp_(from, pass), pass); };
  if (place_ == NormPlace::after) {
    const Tensor x = given.sum(), attended = norm1_.of_sum({x, attention(x)}).normed;
    return {probe("residual", norm2_.of_sum({attended, mlp(attended)}).normed)};
  }
  const auto [x, normed] = norm1_.of_sum(given);
  Residual made;
  if (place_ == NormPlace::parallel) {
    made.x = x + attention(normed), made.added = mlp(norm2_(x));
  } else {
    const SumAndNorm attended = norm2_.of_sum({x, attention(normed)});
    made.x = attended.sum, made.added = mlp(attended.normed);
  }
  // The next norm adds the two; a probe sees their sum.
  return is_watched_under(path()) ? Residual{probe("residual", made.sum())} : made;
}

Transformer::Transformer(const TransformerOptions& options)
    : options_(checked(options)),
      specs_(checked_schemes(options_)),
      embedding_(options.vocabulary, options.dim, inits_of(options).embedding),
      schemes_(specs_, sizes_of(options), SchemeList::Owner::model),
      dropout_(options.dropout),
      layer_runner_(options.recompute_layers ? detail::recomputed_layer : nullptr) {
  for (const PositionalScheme* scheme : schemes_.all()) scheme->join(stages_);
  child("embedding", embedding_);
  child("position", schemes_.root());
  child("dropout", dropout_);
  for (index_t layer = 0; layer < options.layers; ++layer) {
    blocks_.push_back(std::make_unique<Block>(options, layer, specs_, schemes_.all()));
    child("blocks", layer, *blocks_.back());
  }
  if (options.norm_place != NormPlace::after) {
    norm_ = std::make_unique<Norm>(options.dim, options.norm);
    child("norm", *norm_);
  }
  if (options.tied) return;
  head_ = std::make_unique<Linear>(
      options.dim, options.outputs ? options.outputs : options.vocabulary, false, inits_of(options).head);
  child("head", *head_);
}

Tensor Transformer::operator()(const Tensor& tokens, const Pass& pass) const {
  if (tokens.rank() != 2) fail("transformer", "tokens are ", tokens.shape(), "; [batch, time] required");
  return (*this)(tokens, Sequence::run(tokens.size(1), options_.causal), pass);
}

Tensor Transformer::embedded(const Tensor& tokens, Sequence& sequence, const Pass& pass) const {
  sequence = sequence.on(device());  // once, not in every layer
  sequence.tables = tables_;
  sequence.positions.seed = pass.seed;
  sequence.positions.step = pass.step;
  // Padding is hidden here for all layers, whatever its tokens are.
  Tensor x = sequence.without_padding(embedding_(raw::to_device(tokens, device())), 1);
  if (options_.scale_embedding) x = x * std::sqrt(static_cast<double>(options_.dim));
  for (const auto& stage : stages_.embeds) {
    const Scope inside(*stage.path);
    x = stage.scheme->embed(x, stage.moved(sequence.positions));
  }
  return probe("embedded", dropout_(x, pass));
}

Tensor Transformer::operator()(const Tensor& tokens, Sequence sequence, const Pass& pass, AttentionCache* cache) const {
  const Scope scope(path());
  Residual x{embedded(tokens, sequence, pass)};
  for (const auto& block : blocks_) {
    x = layer_runner_ && !cache ? layer_runner_(*block, schemes_.all(), x, sequence, pass)
                                : (*block)(x, sequence, pass, cache);
  }
  return logits_of(x);
}

Tensor Transformer::logits_of(const Residual& stream) const {
  const Tensor x = norm_ ? norm_->of_sum(stream).normed : stream.sum();
  return head_ ? (*head_)(x) : linear(x, embedding_.weight(), Tensor());
}

}  // namespace whence
