// The executors of a whole build, and the choice among them.
//   reference   ops on whole [b h i j] tensors, every probe live: what readers read
//   strips      the same stage code on blocks of query rows, run again in backward: memory for one block, not all pairs
//   tiled       programs over tiles of pairs, no tensor of all pairs in either direction: what training runs
#pragma once

#include <memory>

#include "nn/attention/choice.h"

namespace whence {

const Executor& strips_executor();  // blocks as large as the caches like
const Executor& tiled_executor();   // f32; f64 on the CPU, 16 bits on a GPU; another for calls that no program fits
// Throws Error when there is not one row per block.
[[nodiscard]] std::unique_ptr<Executor> strips_executor_of(index_t rows_per_block);

// The context of query rows [begin, end), without the keys that none of them sees where the schemes allow that.
[[nodiscard]] AttendContext rows_of(const AttendContext& all, const Stages& stages, index_t begin, index_t end);

}  // namespace whence
