// All executors of a full build, and the choice among them.
//   reference   ops on whole [b h i j] tensors, every probe live: the one to read
//   strips      the same stage code on blocks of query rows, run again in backward: memory for one block, not all pairs
//   tiled       programs over tiles of pairs, no tensor of all pairs in either direction: the one that training runs
#pragma once

#include <memory>

#include "nn/attention/choice.h"

namespace whence {

const Executor& strips_executor();  // blocks sized to the caches
const Executor& tiled_executor();   // f32; f64 on the CPU, 16 bits on a GPU; passes on calls without a program
// Throws Error unless rows_per_block is at least 1.
[[nodiscard]] std::unique_ptr<Executor> strips_executor_of(index_t rows_per_block);

// Returns the context of query rows [begin, end), without keys that none of them sees if the schemes allow that.
[[nodiscard]] AttendContext rows_of(const AttendContext& all, const Stages& stages, index_t begin, index_t end);

}  // namespace whence
