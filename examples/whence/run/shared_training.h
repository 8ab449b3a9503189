// Messages of ranks that train together: their options, where to continue, and their weights.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "nn/io/checkpoint.h"
#include "nn/training/precision.h"
#include "tensor/ranks/ranks.h"

namespace whence {

// True on rank 0, or the only rank: it alone reads and writes files, shows progress, and tests.
[[nodiscard]] inline bool speaks(const Communicator* ranks) { return !ranks || ranks->rank() == 0; }

// InputError on every rank, with the differences, unless all were given the same `facts` ("option", "value").
void require_same_on_all(Communicator& ranks, const std::vector<std::pair<std::string, std::string>>& facts);

// Rank 0 alone reads the checkpoint: the others may have no such folder. `state`, weights and moments are then the same
// on all ranks.
void take_from_rank_0(Communicator& ranks, TrainingState& state, MixedPrecision& precision);

// Error if a rank's weights differ from rank 0's. Processors that round otherwise would diverge unnoticed, because each
// keeps its own sums in Adam.
void require_same_weights(Communicator& ranks, const MixedPrecision& precision, std::int64_t step);

}  // namespace whence
