// How much memory tensors may still take.
#pragma once

#include <cstddef>

#include "tensor/device.h"

namespace whence {

// Bytes: on the CPU what the machine, the control groups of this process and its own limits (ulimit -v and -d) have left,
// on a GPU its free memory, and what the allocator holds and nobody uses. 0: not known.
[[nodiscard]] std::size_t free_memory(Device device);

}  // namespace whence
