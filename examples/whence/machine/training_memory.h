// What a training run will take, before it takes it: two of its steps on the planned device (tensor/device/planned.cpp), which
// counts bytes and computes nothing. So no formula knows about a scheme, an executor or an op, and none is forgotten.
#pragma once

#include <cstddef>

#include "nn/training/training_step.h"
#include "nn/transformer.h"

namespace whence {

struct PlannedTraining {
  TransformerOptions model;
  index_t sequences = 1, length = 1;  // of one part
  Device device = {};                 // where it will run
  DType precision = DType::f32;
  std::int64_t accumulate = 1;  // parts that one process does
  bool shared = false;          // with other ranks
};

// Bytes of tensors. `peak` is the largest sum at any time of a step. Not all parts are there at once: what is kept for
// backward goes while gradients come.
struct TrainingMemory {
  std::size_t weights = 0;
  std::size_t optimiser = 0;  // Adam's moments, and the masters of 16-bit weights
  std::size_t attention = 0;  // kept for backward by attention's cores: from queries, keys and values to their mix
  std::size_t layers = 0;     // by the rest of the layers
  std::size_t around = 0;     // by embeddings, logits and loss
  std::size_t gradients = 0;  // of all parameters
  std::size_t peak = 0;
};

[[nodiscard]] TrainingMemory planned_memory(const PlannedTraining& training);

}  // namespace whence
