// What training a model computes, before anything of its size is made: forward and backward run on the planned device,
// which counts (tensor/device/planned.h). So no formula knows about a scheme, and none is forgotten.
#pragma once

#include "nn/transformer.h"
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

// The same model with another dim, the MLP's width in proportion.
[[nodiscard]] TransformerOptions with_dim(TransformerOptions model, index_t dim);
// The dim whose operations per token come nearest to `operations`, heads staying as many as they are: a multiple of
// twice the heads, as schemes that turn pairs need it.
[[nodiscard]] index_t dim_of_cost(const TransformerOptions& model, index_t length, double operations);

}  // namespace whence
