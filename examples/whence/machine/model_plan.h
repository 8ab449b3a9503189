// Counts a model's parameters, a token's operations and a training step's memory before there is a machine for it. All
// of it runs on the planned device (tensor/device/planned.h): nothing of the model's size is allocated, no formula per
// scheme is needed, and none is forgotten.
#pragma once

#include <string>
#include <vector>

#include "examples/whence/machine/memory_plan.h"
#include "tensor/device/planned.h"

namespace whence {

// Per token, forward and backward, without the optimiser's step. All pairs of a sequence count, as usual, including
// those that a causal mask hides. Attention is counted as composed ops, which compute nothing twice.
struct TrainingOperations {
  PlannedOperations products;   // the rest: products with weights, norms, embedding, loss
  PlannedOperations attention;  // scores, softmax and mix of all layers, without a scheme's share
  PlannedOperations scheme;     // the scheme's addition to the same model
  [[nodiscard]] double sum() const { return products.sum() + attention.sum() + scheme.sum(); }
};

// Sequences have `length` tokens. InputError as from Transformer.
[[nodiscard]] TrainingOperations training_operations(const TransformerOptions& model, index_t length);

struct PlannedModel {
  std::string name;
  TransformerOptions options;  // with the scheme and the executor
  index_t length = 0;          // of the sequences
  index_t batch = 1;           // sequences at a time
};

// Formats the tables of all models.
[[nodiscard]] std::string plan_text(const std::vector<PlannedModel>& models);

}  // namespace whence
