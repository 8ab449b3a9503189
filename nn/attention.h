// Multi-head self-attention with positional schemes in its stages.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/dropout.h"
#include "nn/executor.h"
#include "nn/linear.h"
#include "nn/scheme.h"

namespace whence {

struct AttentionOptions {
  index_t dim = 0, heads = 0;
  index_t length = 0;  // the longest sequence trained on, for schemes that ask
  std::string executor = "auto";
  double dropout = 0;                // of the output, in training
  Init in = Init::normal(0, 0.02);   // query, key and value projections
  Init out = Init::normal(0, 0.02);  // output projection
};

class Attention final : public Module {
 public:
  // One instance of every per-layer scheme of `specs`; those that embed tokens belong to the model. Throws InputError when the sizes and
  // the schemes do not fit.
  Attention(const AttentionOptions& options, const std::vector<SchemeSpec>& specs);

  // x [b t c], mask bool broadcasting to [b h i j] -> [b t c]. Probes: q k v scores bias logits pattern, and the schemes' own.
  [[nodiscard]] Tensor operator()(const Tensor& x, const Tensor& mask, const Positions& positions, bool causal, const Pass& pass) const;

  std::string explain() const;  // which executor runs, and why

 private:
  Tensor by_head(const Tensor& x) const;  // [b t c] -> [b h t d], a view

  AttentionOptions options_;
  Linear query_, key_, value_, output_;
  Dropout dropout_;
  SchemeList schemes_;
  Stages stages_;
  ExecutorChoice choice_;
};

}  // namespace whence
