// Before a run: what a step of training will hold, by part, and whether the machine has it. What cannot fit is refused,
// with what would make it smaller.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "examples/whence/machine/training_memory.h"

namespace whence {

// Bytes that tensors may still take: on the CPU what the machine, the control groups of this process and its own limits
// (ulimit -v and -d) have left, on a GPU its free memory, and what the allocator holds and nobody uses. 0: not known.
[[nodiscard]] std::size_t free_memory(Device device);

// Counted from its sizes alone, which may be anything: what every scheme has.
double fewest_parameters(const TransformerOptions& model);
// OutOfMemory when `numbers` numbers (1: to run it; 4: to train it) for each parameter of `model`, counted from its
// sizes alone and at least, are more than is free. Sizes may be anything. Asked before anything of the model is made.
void require_memory(const TransformerOptions& model, Device device, int numbers);

// Passes of a trained model, nothing recorded.
struct PlannedPass {
  TransformerOptions model;
  Device device = {};
  index_t sequences = 1, length = 1;              // read at a time
  index_t cached = 0;                             // tokens whose keys and values are kept
  std::string remedy = "choose a smaller model";  // what would make it smaller
  bool loaded = false;                            // the weights are in memory
};
// A line of what they take, by part, and of what is free (0: not known). OutOfMemory with the remedy when that is less.
[[nodiscard]] std::string require_pass_memory(const PlannedPass& pass, std::size_t free);

// Passes that show all that they compute, so that no other executor would take less.
// The most bytes that `pass` adds at a time, by running it on the planned device; so are the modules that it makes, and
// what it is given must be.
[[nodiscard]] std::size_t planned_peak(const std::function<void()>& pass);
// A line of what `what` takes, and of what is free (0: not known). OutOfMemory with the remedy when that is less.
[[nodiscard]] std::string require_shown_memory(
    const std::string& what, std::size_t peak, std::size_t free, const std::string& remedy);

// A table by part.
[[nodiscard]] std::string memory_table(const TrainingMemory& memory, const PlannedTraining& training);
// One line, and the table where the step is not small beside the limit.
[[nodiscard]] std::string memory_text(const TrainingMemory& memory, const PlannedTraining& training, std::size_t free);

// What makes a step smaller, the smallest change first.
inline constexpr const char* step_remedies =
    "a smaller --batch and as many times the --accumulate, --executor strips, or a smaller model";

// Plans the run. OutOfMemory when it takes more than is free (0: not known), with the remedies; the table is printed
// before, unless the scores of one layer alone are too much.
[[nodiscard]] TrainingMemory require_step_memory(const PlannedTraining& training, std::size_t free);

// Both, for a program: prints the text; the fact that run.json has of it.
std::pair<std::string, std::string> plan_memory(const PlannedTraining& training);

}  // namespace whence
