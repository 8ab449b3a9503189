// A model on paper, before there is a machine for it: its parameters, what a token costs, what a training step holds
// and how many cards that takes. All of it is counted on the planned device (tensor/device/planned.h): nothing of the
// model's size is allocated, no formula knows about a scheme, and none is forgotten.
#pragma once

#include <algorithm>
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

// The same model with another dim, the MLP's width in proportion.
[[nodiscard]] TransformerOptions with_dim(TransformerOptions model, index_t dim);
// The dim whose operations per token come nearest to `operations`, heads staying as many as they are: a multiple of
// twice the heads, as schemes that turn pairs need it.
[[nodiscard]] index_t dim_of_cost(const TransformerOptions& model, index_t length, double operations);

struct PlannedModel {
  std::string name;
  TransformerOptions options;  // with the scheme and the executor
  index_t length = 0;          // of the sequences
  index_t batch = 1;           // sequences on a card at a time
};

// Bytes of a training step on a GPU, in blocks as the allocator has them.
struct PlannedBytes {
  TrainingMemory memory;
  std::size_t bare = 0;      // the peak of a step on next to nothing: what does not depend on the sequences
  std::size_t gathered = 0;  // weights of the largest block or table
  [[nodiscard]] std::size_t state() const { return memory.weights + memory.gradients + memory.optimiser; }
  [[nodiscard]] std::size_t shared() const { return std::max(state(), bare); }
  [[nodiscard]] std::size_t kept() const { return memory.attention + memory.layers + memory.around; }
  [[nodiscard]] std::size_t work() const {
    return memory.peak - std::min(memory.peak, std::max(shared(), memory.weights + memory.optimiser + kept()));
  }
};
[[nodiscard]] PlannedBytes planned_bytes(const PlannedModel& model, DType precision);

// One card holds the step's peak. On several, each holds its share of weights, gradients, optimiser and the copies that
// its step makes, what its own sequences leave for backward and work, and the weights of the part that is being
// computed, gathered from all.
struct Cards {
  index_t count = 0;  // 0: no number of cards would do
  std::string arithmetic;
};
[[nodiscard]] Cards cards_for(const PlannedBytes& bytes, double card_bytes);

// The tables of all.
[[nodiscard]] std::string plan_text(const std::vector<PlannedModel>& models);

// Which dim makes each model cost per token what it costs with `scheme` at the dim that it has.
[[nodiscard]] std::string equal_cost_text(const std::vector<PlannedModel>& models, const std::string& scheme);

}  // namespace whence
