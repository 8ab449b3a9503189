// The part of a study's model that a command line may choose; the study decides the rest.
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
void declare(Fields& line, ModelChoice& choice);  // declares the options under the title "Model"
// Options that were not typed follow the study's model if the study's options changed it from `before` to `after`.
void follow(const Fields& line, ModelChoice& choice, const ModelChoice& before, const ModelChoice& after);
// A dropout of patterns and hidden numbers follows if the model has one, and so does an MLP's width other than 4 dim.
[[nodiscard]] TransformerOptions with(const TransformerOptions& model, const ModelChoice& choice);

// Returns names and texts, which a resumed run must share.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> model_facts(const TransformerOptions& model);

}  // namespace whence
