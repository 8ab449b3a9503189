// Before a run: what it will take, by part, and whether the machine has it. Steps and passes run on the planned device
// (tensor/device/planned.cpp), which counts bytes and computes nothing. So no formula knows about a scheme, an executor or
// an op, and none is forgotten. What cannot fit is refused, with what would make it smaller.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "examples/whence/machine/free_memory.h"
#include "nn/attention/choice.h"
#include "nn/training/training_step.h"
#include "nn/transformer.h"

namespace whence {

// Counted from its sizes alone, which may be anything: what every scheme has.
[[nodiscard]] double fewest_parameters(const TransformerOptions& model);
// All of them, those of the scheme too, counted without taking their memory. InputError as from Transformer.
[[nodiscard]] index_t planned_parameters(const TransformerOptions& model);
// OutOfMemory when `numbers` numbers (1: to run it; 4: to train it) for each parameter of `model` are more than is free.
// Sizes may be anything; InputError as from Transformer. Asked before anything of the model is made.
void require_memory(const TransformerOptions& model, Device device, int numbers);

struct PlannedTraining {
  TransformerOptions model;
  index_t sequences = 1, length = 1;  // of one part
  Device device = {};                 // where it will run
  DType precision = DType::f32;
  std::int64_t accumulate = 1;  // parts that one process does
  bool shared = false;          // with other ranks
  OptimizerOptions optimizer = AdamOptions{};
};

// Bytes of tensors. `peak` is the largest sum at any time of a step. Not all parts are there at once: what is kept for
// backward goes while gradients come.
struct TrainingMemory {
  std::string executor;  // which runs attention, and why: explain_executor
  std::size_t weights = 0;
  std::size_t optimiser = 0;  // its moments, and the masters of 16-bit weights
  std::size_t attention = 0;  // kept for backward by attention's cores: from queries, keys and values to their mix
  std::size_t layers = 0;     // by the rest of the layers
  std::size_t around = 0;     // by embeddings, logits and loss
  std::size_t gradients = 0;  // of all parameters
  std::size_t peak = 0;
};
[[nodiscard]] TrainingMemory planned_memory(const PlannedTraining& training);  // of two steps

// A table by part.
[[nodiscard]] std::string memory_table(const TrainingMemory& memory);
// One line, and the table where the step is not small beside what is free (0: not known).
[[nodiscard]] std::string memory_text(const TrainingMemory& memory, std::size_t free);

// What makes a step smaller, the smallest change first.
inline constexpr const char* step_remedies =
    "a smaller --batch and as many times the --accumulate, --recompute-layers, --executor strips, or a smaller model";
// What the run takes. OutOfMemory when that is more than is free (0: not known), with the remedies; the table is printed
// before, unless the scores of one layer alone are too much.
[[nodiscard]] TrainingMemory require_step_memory(const PlannedTraining& training, std::size_t free);

// Passes of a trained model, nothing recorded.
struct PlannedPass {
  TransformerOptions model;
  Device device = {};
  index_t sequences = 1, length = 1;              // read at a time
  index_t cached = 0;                             // tokens whose keys and values are kept
  std::string remedy = "choose a smaller model";  // what would make it smaller
  bool loaded = false;                            // the weights are in memory
};
// A line of what they take, by part, and of what is free. OutOfMemory with the remedy when that is less.
[[nodiscard]] std::string require_pass_memory(const PlannedPass& pass);

// The most bytes that `pass` adds at a time, by running it on the planned device of `like`; so are the modules that it
// makes, and what it is given must be.
[[nodiscard]] std::size_t planned_peak(const std::function<void()>& pass, Device like = Device::cpu());
// A line of what `what` takes, and of what is free (0: not known). OutOfMemory with the remedy when that is less.
[[nodiscard]] std::string require_shown_memory(
    const std::string& what, std::size_t peak, std::size_t free, const std::string& remedy);

}  // namespace whence
