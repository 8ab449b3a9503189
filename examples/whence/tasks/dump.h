// `--dump`: a task's sequences as JSON lines.
#pragma once

#include <string>

#include "examples/whence/tasks/task.h"

namespace whence::tasks {

struct DumpOptions {
  std::int64_t count = 0;        // sequences; 0: nothing is dumped
  std::string set = "training";  // "training", "validation", or the name of a test set
};

// Prints a line about the set, then each sequence: the model's input, the targets, the graded tokens, and a text for
// people. `batch_size` is training's, whose batches may share a length. InputError if there is no such set.
void dump(
    const std::string& name, const Task& task, const DumpOptions& options, std::uint64_t seed, index_t batch_size);

}  // namespace whence::tasks
