// Before a run: what a step of training will hold, by part, and whether the machine has it. What cannot fit is refused
// with the smallest change that would.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "nn/training_memory.h"

namespace whence {

// Bytes that tensors may still take: on the CPU what the machine and the control groups of this process have left, on
// a GPU its free memory, and what the allocator holds and nobody uses. 0: not known.
[[nodiscard]] std::size_t free_memory(Device device);

struct MemoryLimits {
  std::size_t free = 0;     // 0: not known, and nothing is refused
  bool has_length = false;  // the program has --length, so that shorter sequences can be advised
};

// A table by part.
[[nodiscard]] std::string memory_table(const TrainingMemory& memory, const PlannedTraining& training);
// One line, and the table where the step is not small beside the limit.
[[nodiscard]] std::string memory_text(const TrainingMemory& memory, const PlannedTraining& training, std::size_t free);

// Plans the run. InputError when it cannot fit, with the options that make it fit: the executors first, whose results
// are the same, then smaller batches accumulated to the same steps, then shorter sequences.
[[nodiscard]] TrainingMemory require_step_memory(const PlannedTraining& training, const MemoryLimits& limits);

// Both, for a program: prints the text; the fact that run.json has of it.
std::pair<std::string, std::string> plan_memory(const PlannedTraining& training, bool has_length);

}  // namespace whence
