// The decoder: token embedding, pre-LN blocks as in GPT-2, a final norm, logits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/attention.h"
#include "nn/embedding.h"
#include "nn/mlp.h"
#include "nn/norm.h"

namespace whence {

struct DecoderOptions {
  index_t vocabulary = 0;
  index_t length = 0;  // the longest sequence trained on
  index_t dim = 256, layers = 4, heads = 4;
  index_t hidden = 0;  // of the MLP; 0: 4 dim
  Activation activation = Activation::gelu;
  std::string scheme = "none";  // the grammar of nn/scheme.h
  std::string executor = "auto";
  double dropout = 0;
  bool tied = true;  // logits from the embedding's own table, as in GPT-2; false: a table of their own
};

// x + attention(norm(x)), then x + mlp(norm(x))
class Block final : public Module {
 public:
  Block(const DecoderOptions& options, const std::vector<SchemeSpec>& specs);
  [[nodiscard]] Tensor operator()(const Tensor& x, const Tensor& mask, const Positions& positions, const Pass& pass) const;
  const Attention& attention() const { return attention_; }

 private:
  LayerNorm norm1_, norm2_;
  Attention attention_;
  MLP mlp_;
  Dropout dropout_;
};

class Decoder final : public Module {
 public:
  // Throws InputError when sizes, scheme or executor do not fit together. initialise(seed) draws the parameters.
  explicit Decoder(const DecoderOptions& options);

  // tokens [b t] (index) -> logits [b t v]. Position t sees tokens 0 ... t.
  [[nodiscard]] Tensor operator()(const Tensor& tokens, const Pass& pass = {}) const;

  const DecoderOptions& options() const { return options_; }
  std::string scheme() const { return canonical_text(specs_); }
  std::string explain() const;  // which executor runs attention, and why

 private:
  DecoderOptions options_;
  std::vector<SchemeSpec> specs_;
  Embedding embedding_;
  SchemeList embedders_;  // schemes that are added to the embedding
  Dropout dropout_;
  std::vector<std::unique_ptr<Block>> blocks_;
  LayerNorm norm_;
  std::unique_ptr<Linear> head_;
};

// bool [1 1 t t]: true where key j <= query i.
Tensor causal_mask(index_t length);

}  // namespace whence
