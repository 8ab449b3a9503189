// Shared by runtime.cpp, runtime_graphs.cpp and runtime_launches.cpp.
#pragma once

#include <cstddef>

#include "cuda/runtime/runtime.h"

namespace whence::gpu {

// Throws Error "op: call: the runtime's message" unless `status`, a cudaError_t, is success. For calls that request
// something; synchronise() reports errors of kernels, because it knows the launches.
void require(int status, const char* op, const char* call);

// Pinned memory for bytes that wait for their copy.
void* allocate_pinned(std::size_t bytes);

// Copies from pinned memory, in order with kernels.
void copy_from_pinned(const void* from, void* to, std::size_t bytes);

// While capturing: returns a copy of `from` in pinned memory that lives as long as the graph.
const void* keep_for_graph(const void* from, std::size_t bytes);

// Adds to the record of launches since the device last had no error. `what` must outlive the program's work.
void remember(const char* what);

}  // namespace whence::gpu
