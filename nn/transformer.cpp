// The decoder and its blocks.
#include "nn/transformer.h"

#include <cmath>

#include "autograd/ops.h"
#include "autograd/probe.h"
#include "tensor/error.h"

namespace whence {
namespace {

const DecoderOptions& checked(const DecoderOptions& options) {
  const auto require_positive = [](const char* name, index_t value) {
    if (value < 1) throw InputError(concat("decoder: ", name, " ", value, " given; 1 or more required"));
  };
  require_positive("vocabulary", options.vocabulary);
  require_positive("length", options.length);
  require_positive("dim", options.dim);
  require_positive("layers", options.layers);
  require_positive("heads", options.heads);
  return options;
}

// GPT-2: N(0, 0.02); what adds to the residual stream has its deviation divided by sqrt(2 layers), as that many terms are summed.
Init residual_init(const DecoderOptions& options) { return Init::normal(0, 0.02 / std::sqrt(2.0 * static_cast<double>(options.layers))); }

AttentionOptions attention_options(const DecoderOptions& options) {
  return {.dim = options.dim,
          .heads = options.heads,
          .length = options.length,
          .executor = options.executor,
          .dropout = options.dropout,
          .out = residual_init(options)};
}

MLPOptions mlp_options(const DecoderOptions& options) {
  return {.dim = options.dim,
          .hidden = options.hidden ? options.hidden : 4 * options.dim,
          .activation = options.activation,
          .out = residual_init(options)};
}

}  // namespace

Tensor causal_mask(index_t length) {
  const Tensor mask = Tensor::empty({1, 1, length, length}, DType::boolean);
  bool* allowed = mask.data<bool>();
  for (index_t i = 0; i < length; ++i) {
    for (index_t j = 0; j < length; ++j) allowed[i * length + j] = j <= i;
  }
  return mask;
}

Block::Block(const DecoderOptions& options, const std::vector<SchemeSpec>& specs)
    : norm1_(options.dim),
      norm2_(options.dim),
      attention_(attention_options(options), specs),
      mlp_(mlp_options(options)),
      dropout_(options.dropout) {
  child("norm1", norm1_);
  child("attention", attention_);
  child("norm2", norm2_);
  child("mlp", mlp_);
  child("dropout", dropout_);
}

Tensor Block::operator()(const Tensor& x, const Tensor& mask, const Positions& positions, const Pass& pass) const {
  const Tensor attended = x + attention_(norm1_(x), mask, positions, true, pass);
  return attended + dropout_(mlp_(norm2_(attended)), pass);
}

Decoder::Decoder(const DecoderOptions& options)
    : options_(checked(options)),
      specs_(parse_schemes(options.scheme)),
      embedding_(options.vocabulary, options.dim),
      embedders_(specs_, {options.dim, options.heads, options.length}, false),
      dropout_(options.dropout),
      norm_(options.dim) {
  child("embedding", embedding_);
  child("position", embedders_.root());
  child("dropout", dropout_);
  for (index_t layer = 0; layer < options.layers; ++layer) {
    blocks_.push_back(std::make_unique<Block>(options, specs_));
    child("blocks", layer, *blocks_.back());
  }
  child("norm", norm_);
  if (options.tied) return;
  head_ = std::make_unique<Linear>(options.dim, options.vocabulary, false);
  child("head", *head_);
}

Tensor Decoder::operator()(const Tensor& tokens, const Pass& pass) const {
  if (tokens.rank() != 2) fail("decoder", concat("tokens are ", tokens.shape(), "; [batch, time] required"));
  const Scope scope(path());
  const index_t length = tokens.size(1);
  const Positions positions = Positions::range(length);
  Tensor x = embedding_(tokens);
  for (const PositionalScheme* scheme : embedders_.all()) {
    const Scope inside(scheme->path());
    x = dynamic_cast<const EmbedsTokens&>(*scheme).embed(x, positions);
  }
  x = dropout_(x, pass);
  const Tensor mask = causal_mask(length);
  for (const auto& block : blocks_) x = (*block)(x, mask, positions, pass);
  x = norm_(x);
  return head_ ? (*head_)(x) : linear(x, embedding_.weight(), Tensor());  // [b t v]
}

std::string Decoder::explain() const { return blocks_[0]->attention().explain(); }

}  // namespace whence
