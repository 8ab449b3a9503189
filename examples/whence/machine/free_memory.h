// Returns how much memory tensors may still take.
#pragma once

#include <cstddef>

#include "tensor/device.h"

namespace whence {

// In bytes. On the CPU: what the machine, the control groups of this process and its own limits (ulimit -v and -d)
// leave. On a GPU: its free memory, and unused memory of the allocator. 0: unknown.
[[nodiscard]] std::size_t free_memory(Device device);

}  // namespace whence
