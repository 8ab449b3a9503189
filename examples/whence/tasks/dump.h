// `--dump`: a task's sequences as JSON lines.
#pragma once

#include <string>

#include "examples/whence/tasks/task.h"

namespace whence::tasks {

struct DumpOptions {
  std::int64_t count = 0;        // sequences; 0: nothing is dumped
  std::string set = "training";  // "training", "validation", or the name of a test set
};

// A line about all of it, and then sequence by sequence: what the model reads, what it is trained on, what is graded,
// and all of it for people. `batch_size`: of training, whose batches may share a length. InputError where there is no
// such set.
void dump(
    const std::string& name, const Task& task, const DumpOptions& options, std::uint64_t seed, index_t batch_size);

}  // namespace whence::tasks
