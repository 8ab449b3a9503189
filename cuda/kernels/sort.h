// Sorting 64-bit keys on the device. The host need not group them: nothing waits, so it can be captured in a graph.
#pragma once

#include "tensor/tensor.h"

namespace whence::gpu {

// Fills the rest of a longer buffer: sorts after every key, because keys must be smaller.
inline constexpr index_t no_key = INT64_MAX;

// Returns the extent of a buffer for `count` keys: a power of two.
index_t sort_extent(index_t count);

// Ascending, in place. keys: i64, contiguous, with a sort_extent as its extent. Equal keys are
// indistinguishable, so the result is fixed.
void sort_keys(const Tensor& keys);

}  // namespace whence::gpu
