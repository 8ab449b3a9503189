// Multi-head self-attention, softmax(q k' / sqrt(d)) v by head (Vaswani et al. 2017, Eq. 1), with positional schemes in
// its stages. Heads of queries may share keys and values (nn/attention/key_heads.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "nn/attention/executor.h"
#include "nn/layers/dropout.h"
#include "nn/layers/linear.h"
#include "nn/scheme.h"

namespace whence {

struct AttentionOptions {
  index_t dim = 0, heads = 0;
  index_t length = 0;    // the longest sequence trained on, in tokens, for schemes that ask
  index_t layer = 0;     // its number in the model, for schemes that ask
  index_t kv_heads = 0;  // of keys and values, a divisor of heads; 0: as many
  std::string executor = "auto";
  double dropout = 0;                // of the output, in training; in [0, 1), as the next
  double pattern_dropout = 0;        // of the attention pattern, in training
  bool bias = true;                  // of the four projections
  Init in = Init::normal(0, 0.02);   // query, key and value projections
  Init out = Init::normal(0, 0.02);  // output projection
  Init bias_init = Init::zeros();
};

// Keys, values and inputs of earlier tokens, by layer (nn/decoding.h).
struct AttentionCache {
  virtual ~AttentionCache() = default;
  // Puts it in front of x, keys and values. True if the queries of earlier tokens are to be computed again too: then the
  // sequence has the rows of all.
  virtual bool extend(index_t layer, AttendInputs& inputs, const Stages& stages) = 0;
};

// What attention passes to probes under any scheme, in its order: x q k v scores logits pattern output. Every executor
// passes x, q, k, v and output; the rest are the reference executor's alone.
const std::vector<ProbeInfo>& attention_probes();

class Attention final : public Module {
 public:
  // Makes those schemes of `specs` that each layer has for itself. `shared` are the model's, serve all layers, and
  // outlive this. Throws InputError when the sizes and the schemes do not fit.
  Attention(const AttentionOptions& options, const std::vector<SchemeSpec>& specs,
      const std::vector<const PositionalScheme*>& shared = {});

  // x [b t c] in the parameters' dtype -> [b t c]. With a cache, x are the tokens after those in it, and the keys of
  // `sequence` are all of them. Probes: those of attention_probes(), and the schemes' own.
  [[nodiscard]] Tensor operator()(
      const Tensor& x, const Sequence& sequence, const Pass& pass = {}, AttentionCache* cache = nullptr) const;

  // Which executor runs for so many sequences of this length, and why: explain_executor.
  std::string explain(Device device, DType dtype, index_t sequences, index_t length, bool causal = true) const;
  const Stages& stages() const { return stages_; }

 private:
  AttentionOptions options_;
  Linear query_, key_, value_, output_;
  Dropout dropout_;
  SchemeList schemes_;
  Stages stages_;
  const Executor* executor_;  // null: what suits each call
};

}  // namespace whence
