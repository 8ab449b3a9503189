// What of a study's model may be chosen on a command line; the rest is the study's.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "examples/whence/cli/fields.h"
#include "nn/transformer.h"

namespace whence {

struct ModelChoice {
  std::string scheme, activation, executor;
  std::int64_t dim = 0, layers = 0, heads = 0, kv_heads = 0;
  double dropout = 0;
  bool recompute_layers = false;
};

[[nodiscard]] ModelChoice choice_of(const TransformerOptions& model);
void declare(Fields& line, ModelChoice& choice);  // under the title "Model"
// What was not typed follows the study's model where the study's own options have changed it from `before` to `after`.
void follow(const Fields& line, ModelChoice& choice, const ModelChoice& before, const ModelChoice& after);
// A dropout of patterns and hidden numbers follows where the model has one, and so does an MLP's width other than 4 dim.
[[nodiscard]] TransformerOptions with(const TransformerOptions& model, const ModelChoice& choice);

// As names and texts: what a resumed run must share.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> model_facts(const TransformerOptions& model);

}  // namespace whence
