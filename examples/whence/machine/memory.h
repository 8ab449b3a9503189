// The memory of a run, by part, before it starts. Steps and passes run on the planned device
// (tensor/device/planned.cpp), which counts bytes and computes nothing. So no formula per scheme, executor or op is
// needed, and none is forgotten. A run that cannot fit is refused, with what takes less.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "nn/training/training.h"
#include "nn/transformer.h"

namespace whence {

// Returns the bytes that tensors may still take. On the CPU: what the machine, the control groups of this process and
// its own limits (ulimit -v and -d) leave. On a GPU: its free memory, and unused memory of the allocator. 0: unknown.
[[nodiscard]] std::size_t free_memory(Device device);

// Counts the parameters that every scheme has, from the sizes alone, which may be anything.
[[nodiscard]] double fewest_parameters(const TransformerOptions& model);
// Counts all parameters, the scheme's included, without taking their memory. InputError as from Transformer.
[[nodiscard]] index_t planned_parameters(const TransformerOptions& model);
// OutOfMemory when `numbers` numbers (1: to run it; 4: to train it) for each parameter of `model` are more than is
// free. Called before any part of the model is made: sizes may be anything; InputError as from Transformer.
void require_memory(const TransformerOptions& model, Device device, int numbers);

struct PlannedTraining {
  TransformerOptions model;
  index_t sequences = 1, length = 1;  // in one part
  Device device = {};                 // the device of the run
  DType precision = DType::f32;
  std::int64_t accumulate = 1;  // parts per process
  bool shared = false;          // with other ranks
};

// Bytes of tensors. `peak` is the largest sum at any time of a step. Not all parts exist at once: what is kept for
// backward is freed while gradients are made.
struct TrainingMemory {
  std::string executor;  // the one that runs attention, and why: explain_executor
  std::size_t weights = 0;
  std::size_t optimiser = 0;  // moments, and the masters of 16-bit weights
  std::size_t attention = 0;  // kept for backward by attention's cores: from queries, keys and values to their mix
  std::size_t layers = 0;     // kept by the rest of the layers
  std::size_t around = 0;     // kept by embeddings, logits and loss
  std::size_t gradients = 0;  // all parameters' gradients
  std::size_t peak = 0;
};
[[nodiscard]] TrainingMemory planned_memory(const PlannedTraining& training);  // plans two steps
[[nodiscard]] std::string memory_table(const TrainingMemory& memory);

// Names what makes a step smaller, the smallest change first.
inline constexpr const char* step_remedies =
    "a smaller --batch and as many times the --accumulate, --recompute-layers, --executor strips, or a smaller model";
// Returns the run's memory. OutOfMemory with the remedies when that is more than is free (0: unknown); the table is
// printed before, unless tokens and scores alone are too much.
[[nodiscard]] TrainingMemory require_step_memory(const PlannedTraining& training, std::size_t free);

// A pass of a trained model, without recording.
struct PlannedPass {
  TransformerOptions model;
  Device device = {};
  index_t sequences = 1, length = 1;              // per pass
  index_t cached = 0;                             // tokens with keys and values in the cache
  std::string remedy = "choose a smaller model";  // a way to make it smaller
  bool loaded = false;                            // the weights are in memory
};
// Returns a line with the pass's memory, and the free memory. OutOfMemory with the remedy when the latter is less.
[[nodiscard]] std::string require_pass_memory(const PlannedPass& pass);

// Returns the most bytes that `pass` adds at a time, by running it on the planned device of `like`. Its modules are
// planned too, and its operands must be.
[[nodiscard]] std::size_t planned_peak(const std::function<void()>& pass, Device like = Device::cpu());
// Returns "memory: 3 GiB at the peak of WHAT; 5 GiB are free" (0: unknown). OutOfMemory with the remedy when that is less.
[[nodiscard]] std::string require_shown_memory(
    const std::string& what, std::size_t peak, std::size_t free, const std::string& remedy);

}  // namespace whence
