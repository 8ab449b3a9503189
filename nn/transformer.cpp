#include "nn/transformer.h"

#include <cmath>
#include <utility>

#include "autograd/inspect/probe.h"
#include "autograd/ops.h"
#include "autograd/recompute.h"
#include "nn/fused.h"
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

struct Inits {
  Init embedding, in, out, bias, head;
};

// See Initialisation in the header.
Inits inits_of(const TransformerOptions& options) {
  const double dim = static_cast<double>(options.dim), layers = static_cast<double>(options.layers);
  const Init zeros = Init::zeros(), small = Init::normal(0, 0.02);
  switch (options.initialisation) {
    case Initialisation::gpt2: return {small, small, Init::normal(0, 0.02 / std::sqrt(2 * layers)), zeros, small};
    case Initialisation::neox: {
      const Init in = Init::normal(0, std::sqrt(2 / (5 * dim)));
      return {in, in, Init::normal(0, 2 / (layers * std::sqrt(dim))), zeros, in};
    }
    case Initialisation::llama: return {small, small, small, zeros, small};
    case Initialisation::ram: {
      const Init linear = Init::fan_in(options.dim);
      return {Init::normal(0, 1 / std::sqrt(dim)), linear, linear, linear, linear};
    }
    default: {
      const Init linear = Init::truncated_normal(0, 1 / std::sqrt(dim));
      return {Init::truncated_normal(0, 0.02), linear, linear, zeros, linear};
    }
  }
}

// An encoder cannot have schemes that mean nothing without a causal mask.
std::vector<SchemeSpec> checked_schemes(const TransformerOptions& options) {
  std::vector<SchemeSpec> specs = parse_schemes(options.scheme);
  for (const SchemeSpec& spec : specs) {
    if (!options.causal && spec.make({options.dim, options.heads, options.length})->claims().causal_only) {
      throw InputError("transformer: ", spec.text(),
          " in a model that is not causal given; it has no meaning without a causal mask; ", "choose another scheme");
    }
  }
  return specs;
}

index_t hidden_of(const TransformerOptions& options) { return options.hidden ? options.hidden : 4 * options.dim; }

AttentionOptions attention_options(const TransformerOptions& options, index_t layer) {
  const Inits inits = inits_of(options);
  return {.dim = options.dim,
      .heads = options.heads,
      .length = options.length,
      .layer = layer,
      .executor = options.executor,
      .dropout = options.dropout,
      .pattern_dropout = options.pattern_dropout,
      .bias = options.bias && options.attention_bias,
      .in = inits.in,
      .out = inits.out,
      .bias_init = inits.bias};
}

MLPOptions mlp_options(const TransformerOptions& options) {
  const Inits inits = inits_of(options);
  return {.dim = options.dim,
      .hidden = hidden_of(options),
      .activation = options.activation,
      .in = inits.in,
      .out = options.initialisation == Initialisation::ram ? Init::fan_in(hidden_of(options)) : inits.out,
      .bias_init = inits.bias,
      .bias = options.bias,
      .dropout = options.hidden_dropout};
}

}  // namespace

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

Tensor Block::operator()(const Tensor& x, const Sequence& sequence, const Pass& pass, AttentionCache* cache) const {
  const Scope scope(path());
  const auto attention = [&](const Tensor& from) { return attention_(from, sequence, pass, cache); };
  const auto mlp = [&](const Tensor& from) { return dropout_(feed_forward(mlp_, from, pass), pass); };
  if (place_ == NormPlace::parallel) {
    const Tensor attended = x + attention(norm1_(x));
    return attended + mlp(norm2_(x));
  }
  if (place_ == NormPlace::after) {
    const Tensor attended = add_then_norm(x, attention(x), norm1_).normed;
    return add_then_norm(attended, mlp(attended), norm2_).normed;
  }
  const SumAndNorm attended = add_then_norm(x, attention(norm1_(x)), norm2_);
  return attended.sum + mlp(attended.normed);
}

Transformer::Transformer(const TransformerOptions& options)
    : options_(checked(options)),
      specs_(checked_schemes(options_)),
      embedding_(options.vocabulary, options.dim, inits_of(options).embedding),
      schemes_(specs_, {options.dim, options.heads, options.length}, SchemeList::Part::shared),
      dropout_(options.dropout) {
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

// bool [1|b t 1] on the device: false where one of the `count` tokens is padding.
static Tensor present_of(const Sequence& sequence, index_t count) {
  const Tensor tokens = slice(sequence.present, -1, sequence.first_row, sequence.first_row + count);
  return raw::to_device(reshape(tokens, {-1, count, 1}), sequence.device);
}

Tensor Transformer::recomputed(const Block& block, const Tensor& x, const Sequence& sequence, const Pass& pass) const {
  std::vector<Tensor> read{x};
  for (const Parameter& parameter : block.parameters()) read.push_back(parameter.tensor);
  for (const PositionalScheme* scheme : schemes_.all())
    for (const Parameter& parameter : scheme->parameters()) read.push_back(parameter.tensor);
  return recompute(
      [&block, sequence, pass](const std::vector<Tensor>& given) { return block(given[0], sequence, pass); }, read);
}

Tensor Transformer::operator()(
    const Tensor& tokens, Sequence sequence, const Pass& pass, std::vector<AttentionCache>* caches) const {
  const Scope scope(path());
  sequence = sequence.on(device());  // once, not in every layer
  sequence.positions.seed = pass.seed;
  sequence.positions.step = pass.step;
  Tensor x = embedding_(raw::to_device(tokens, device()));
  if (sequence.present.defined())  // here padding is hidden, whatever its tokens hold, for all layers
    x = masked(x, present_of(sequence, x.size(1)));
  if (options_.scale_embedding) x = x * std::sqrt(static_cast<double>(options_.dim));
  for (const auto& stage : stages_.embeds) {
    const Scope inside(*stage.path);
    x = stage.scheme->embed(x, stage.moved(sequence.positions));
  }
  x = dropout_(x, pass);
  for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
    const Block& block = *blocks_[layer];
    const bool again = options_.recompute_layers && !caches && !Capture::wants_under(block.path());
    x = again ? recomputed(block, x, sequence, pass) : block(x, sequence, pass, caches ? &(*caches)[layer] : nullptr);
  }
  if (norm_) x = (*norm_)(x);
  return head_ ? (*head_)(x) : linear(x, embedding_.weight(), Tensor());  // [b t v]
}

}  // namespace whence
