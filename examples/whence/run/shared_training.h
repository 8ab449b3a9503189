// What ranks that train together tell each other: what they were given, where to go on, and their weights.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "nn/io/checkpoint.h"
#include "nn/training/precision.h"
#include "tensor/ranks/communicator.h"

namespace whence {

// Rank 0, or the only one: it alone reads and writes files, shows progress, and tests.
[[nodiscard]] inline bool speaks(const Communicator* ranks) { return !ranks || ranks->rank() == 0; }

// InputError on every rank, which says what differs, unless all were given the same `facts` ("option", "value").
void require_same_on_all(Communicator& ranks, const std::vector<std::pair<std::string, std::string>>& facts);

// Rank 0 alone reads the checkpoint: the others may have no such folder. `state`, weights and moments are then the same
// on all.
void take_from_rank_0(Communicator& ranks, TrainingState& state, MixedPrecision& precision);

// Error where a rank has other weights than rank 0: processors that round otherwise would go apart without a sign of it,
// as each has its own sums in Adam.
void require_same_weights(Communicator& ranks, const MixedPrecision& precision, std::int64_t step);

}  // namespace whence
