// The papers' models by name, as values of TransformerOptions; and the operations of a model's training.
#pragma once

#include <string>
#include <vector>

#include "nn/transformer.h"
#include "tensor/device/planned.h"

namespace whence {

struct NamedModel {
  std::string name;
  std::string description;     // one line
  TransformerOptions options;  // with the scheme of the paper's baseline
};

const std::vector<NamedModel>& named_models();

// Throws InputError with the nearest name if `name` is unknown. `scheme`: the grammar of nn/scheme.h; empty: the
// model's own.
TransformerOptions named_model(const std::string& name, const std::string& scheme = {});

// Per token, forward and backward, without the optimiser's step. All pairs of a sequence count, as usual, including
// those that a causal mask hides. Attention is counted as composed ops, which compute nothing twice.
struct TrainingOperations {
  PlannedOperations products;   // the rest: products with weights, norms, embedding, loss
  PlannedOperations attention;  // scores, softmax and mix of all layers, without a scheme's share
  PlannedOperations scheme;     // the scheme's addition to the same model
  [[nodiscard]] double sum() const { return products.sum() + attention.sum() + scheme.sum(); }
};

// Sequences have `length` tokens. Runs on the planned device (tensor/device/planned.h): nothing of the model's size is
// allocated, no formula per scheme is needed, and none is forgotten. InputError as from Transformer.
[[nodiscard]] TrainingOperations training_operations(const TransformerOptions& model, index_t length);

}  // namespace whence
