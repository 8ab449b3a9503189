// The transformer: token embedding, blocks of attention and MLP, logits. Its options select the variant;
// examples/whence/machine/models.h has the options of the papers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/attention/attention.h"
#include "nn/layers/init.h"
#include "nn/layers/layers.h"

namespace whence {

// before: x + f(norm(x)), as in GPT-2. after: norm(x + f(x)), as in the first transformer. parallel: attention and MLP
// read the same x, x + attention(norm1(x)) + mlp(norm2(x)), as in GPT-NeoX.
enum class NormPlace : unsigned char { before, after, parallel };

struct TransformerOptions {
  index_t vocabulary = 0;
  index_t outputs = 0;  // numbers per token; 0: the vocabulary
  index_t length = 0;   // the longest training sequence, in tokens; this, vocabulary and the next line: 1 or more
  index_t dim = 256, layers = 4, heads = 4;
  index_t kv_heads = 0;  // heads of keys and values, a divisor of heads (nn/attention/heads.h); 0: the same number
  index_t key_heads() const { return kv_heads ? kv_heads : heads; }
  index_t hidden = 0;  // channels inside the MLP; 0: 4 dim
  Activation activation = Activation::gelu;
  NormKind norm = NormKind::layer;
  NormPlace norm_place = NormPlace::before;
  Initialisation initialisation = Initialisation::gpt2;
  std::string scheme = "none";  // the grammar of nn/scheme.h
  std::string executor = "auto";
  bool causal = true;            // false: an encoder, every token sees every other
  bool bias = true;              // for MLPs, and for attention's projections if the next is true
  bool attention_bias = true;    // see above
  bool tied = true;              // logits use the embedding's table, as in GPT-2; false: a table of their own
  bool scale_embedding = false;  // by sqrt(dim)
  double dropout = 0;            // in [0, 1), on embedding, attention's output and MLP's output, in training
  double pattern_dropout = 0;    // on the attention patterns
  double hidden_dropout = 0;     // inside the MLP
  // Backward computes each block again instead of saving its intermediates: less memory, the time of one more forward
  // pass, and the same bits on the CPU. A GPU rounds the stream's gradient between blocks once more
  // (nn/recomputed_layers.cpp; a build without it saves the intermediates).
  bool recompute_layers = false;
};

// Probes of a block itself: "blocks.0.residual". The input of the first block passes "embedded".
const std::vector<ProbeInfo>& block_probes();

class Block final : public Module {
 public:
  Block(const TransformerOptions& options, index_t layer, const std::vector<SchemeSpec>& specs,
      const std::vector<const PositionalScheme*>& shared);
  // The residual stream [b t c] before the block, in the parameters' dtype -> after it.
  [[nodiscard]] Residual operator()(
      const Residual& given, const Sequence& sequence, const Pass& pass, AttentionCache* cache = nullptr) const;
  const Attention& attention() const { return attention_; }
  const Norm& norm1() const { return norm1_; }
  const Norm& norm2() const { return norm2_; }

 private:
  NormPlace place_;
  Norm norm1_, norm2_;
  Attention attention_;
  MLP mlp_;
  Dropout dropout_;
};

// Runs a block; `shared`: the schemes that serve all layers.
using LayerRunner = Residual (*)(const Block& block, const std::vector<const PositionalScheme*>& shared,
    const Residual& x, const Sequence& sequence, const Pass& pass);
namespace detail {
inline LayerRunner recomputed_layer = nullptr;  // set by nn/recomputed_layers.cpp
}

class Transformer final : public Module {
 public:
  // Throws InputError if sizes, scheme or executor do not fit together. initialise(seed) draws the parameters.
  explicit Transformer(const TransformerOptions& options);

  // tokens [b t] i64 or i32 in [0, vocabulary), else Error, on the CPU or the model's device -> logits [b t v] in the
  // parameters' dtype. In a causal model row t sees tokens 0 ... t.
  [[nodiscard]] Tensor operator()(const Tensor& tokens, const Pass& pass = {}) const;
  // The same for tokens with padding or other positions, or that continue a cache.
  [[nodiscard]] Tensor operator()(
      const Tensor& tokens, Sequence sequence, const Pass& pass, AttentionCache* cache = nullptr) const;

  // The start of the pass alone, [b t c] before the first block. Gives `sequence` what all layers share.
  [[nodiscard]] Tensor embedded(const Tensor& tokens, Sequence& sequence, const Pass& pass) const;
  // The end of the pass alone, from the residual stream [b t c]: the last norm, and the logits [b t v].
  [[nodiscard]] Tensor logits_of(const Residual& stream) const;

  const TransformerOptions& options() const { return options_; }
  Device device() const { return embedding_.weight().device(); }
  std::string scheme() const { return canonical_text(specs_); }
  const Block& block(index_t layer) const { return *blocks_[static_cast<std::size_t>(layer)]; }
  const Attention& attention(index_t layer) const { return block(layer).attention(); }
  const Norm* norm() const { return norm_.get(); }  // the last one; null where norms come after

 private:
  TransformerOptions options_;
  std::vector<SchemeSpec> specs_;
  Embedding embedding_;
  SchemeList schemes_;  // the schemes that serve all layers
  Stages stages_;       // their stages; only embedding runs here
  Dropout dropout_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<Norm> norm_;                                    // after the last block, unless norms come after
  std::unique_ptr<Linear> head_;                                  // null if tied
  LayerRunner layer_runner_;                                      // null: blocks run directly
  const std::shared_ptr<TableCache> tables_ = Sequence().tables;  // for all steps
};

}  // namespace whence
