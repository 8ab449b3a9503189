// What runtime.cpp, runtime_graphs.cpp and runtime_launches.cpp share.
#pragma once

#include <cstddef>

#include "cuda/runtime/runtime.h"

namespace whence::gpu {

// Error "op: call: what the runtime says" unless `status`, a cudaError_t, is success. For calls that ask for something;
// synchronise() reports errors of kernels, because it knows what was launched.
void require(int status, const char* op, const char* call);

// Where bytes of the CPU wait for their copy.
void* allocate_pinned(std::size_t bytes);

// A copy from pinned memory, in order with kernels.
void copy_from_pinned(const void* from, void* to, std::size_t bytes);

// While capturing: `from` as it is now, in pinned memory that lives as long as the graph.
const void* keep_for_graph(const void* from, std::size_t bytes);

// Adds to the list of what was launched since the device last had no error. `what` outlives the program's work.
void remember(const char* what);

}  // namespace whence::gpu
