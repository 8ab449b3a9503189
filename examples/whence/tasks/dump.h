// `--dump`: a task's sequences as JSON lines.
#pragma once

#include <string>

#include "examples/whence/tasks/task.h"

namespace whence::tasks {

// Prints a line about the training set, then `count` sequences: the model's input, the targets, the graded tokens, and a
// text for people. `batch_size` is training's, whose batches may share a length.
void dump(const std::string& name, const Task& task, std::int64_t count, std::uint64_t seed, index_t batch_size);

}  // namespace whence::tasks
