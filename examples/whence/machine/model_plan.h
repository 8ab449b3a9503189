// A model on paper, before there is a machine for it: its parameters, what a token costs, and what a training step holds.
// All of it is counted on the planned device (tensor/device/planned.h): nothing of the
// model's size is allocated, no formula knows about a scheme, and none is forgotten.
#pragma once

#include <string>
#include <vector>

#include "examples/whence/machine/memory_plan.h"
#include "tensor/device/planned.h"

namespace whence {

// Per token, forward and backward, without the optimiser's step. All pairs of a sequence count, as usual, also those
// that a causal mask hides; of several ways to compute attention it is the composed one, which computes nothing twice.
struct TrainingOperations {
  PlannedOperations products;   // everything else: products with weights, norms, embedding, loss
  PlannedOperations attention;  // scores, softmax and mix of the layers, as without a scheme
  PlannedOperations scheme;     // what the scheme adds to the same model
  [[nodiscard]] double sum() const { return products.sum() + attention.sum() + scheme.sum(); }
};

// For sequences of `length` tokens. InputError as from Transformer.
[[nodiscard]] TrainingOperations training_operations(const TransformerOptions& model, index_t length);

struct PlannedModel {
  std::string name;
  TransformerOptions options;  // with the scheme and the executor
  index_t length = 0;          // of the sequences
  index_t batch = 1;           // sequences at a time
};

// The tables of all.
[[nodiscard]] std::string plan_text(const std::vector<PlannedModel>& models);

}  // namespace whence
