// Multi-head self-attention, softmax(q k' / sqrt(d)) v for each head (Vaswani et al. 2017, Eq. 1), with positional
// schemes in its stages. Heads of queries may share keys and values (nn/attention/heads.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "nn/attention/attend.h"
#include "nn/layers/layers.h"
#include "nn/scheme.h"

namespace whence {

struct AttentionOptions {
  index_t dim = 0, heads = 0;
  index_t length = 0;    // the longest training sequence, in tokens, for schemes that need it
  index_t layer = 0;     // its number in the model, for schemes that need it
  index_t kv_heads = 0;  // heads of keys and values, a divisor of heads; 0: the same number
  std::string executor = "auto";
  double dropout = 0;                // on the output, in training; in [0, 1), as is the next
  double pattern_dropout = 0;        // on the attention pattern, in training
  bool bias = true;                  // in the four projections
  Init in = Init::normal(0, 0.02);   // query, key and value projections
  Init out = Init::normal(0, 0.02);  // output projection
  Init bias_init = Init::zeros();
};

// Keys and values of earlier tokens, and inputs for schemes that read them, by layer (nn/decoding.h).
struct AttentionCache {
  virtual ~AttentionCache() = default;
  // Returns the queries [b h t d] of x [b t c], and all keys and values, among which the product has written those of x;
  // undefined tensors if none can. by: of queries, keys and values
  virtual std::array<Tensor, 3> project(
      [[maybe_unused]] index_t layer, const Tensor&, const std::array<Projection, 3>&, [[maybe_unused]] index_t heads) {
    return {};
  }
  // Appends x, keys and values to the cache unless it has them, and returns the output [b h t d] of the new queries.
  virtual Tensor attend(index_t layer, AttendInputs inputs, const Stages& stages, const AttendPlan& wanted) = 0;
};

// Returns the probes of attention under any scheme, in order: x q k v scores logits pattern output. Every executor
// passes x, q, k, v and output; only the reference executor passes the rest.
const std::vector<ProbeInfo>& attention_probes();

class Attention final : public Module {
 public:
  // Makes the schemes of `specs` that each layer has for itself. The `shared` schemes belong to the model, serve all
  // layers, and outlive this. Throws InputError if the sizes and the schemes do not fit.
  Attention(const AttentionOptions& options, const std::vector<SchemeSpec>& specs,
      const std::vector<const PositionalScheme*>& shared = {});

  // x [b t c] in the parameters' dtype -> [b t c]. With a cache, x are the tokens after the cached ones, and the keys
  // of `sequence` are all tokens. Probes: those of attention_probes(), and the schemes' own.
  [[nodiscard]] Tensor operator()(
      const Tensor& x, const Sequence& sequence, const Pass& pass = {}, AttentionCache* cache = nullptr) const;

  // Returns which executor runs for this number of sequences of this length, and why: "reference (no tile programs for
  // bf16 on the CPU)".
  std::string explain(Device device, DType dtype, index_t sequences, index_t length, bool causal = true) const;
  const Stages& stages() const { return stages_; }
  // Returns queries [b h t d], keys and values [b g t d] of x [b t c], or what a cache returns.  (Vaswani et al. 2017,
  // section 3.2.2)
  std::array<Tensor, 3> project(const Tensor& x, AttentionCache* cache = nullptr) const;

 private:
  AttentionOptions options_;
  Linear query_, key_, value_, output_;
  Dropout dropout_;
  SchemeList schemes_;
  Stages stages_;
  AttendPlan wanted_;
};

}  // namespace whence
