// The CUDA runtime for the rest of cuda/, free of CUDA's own headers. runtime.cpp uses the driver;
// cuda/emulator/runtime.cpp is the twin that runs without one. Everything goes on one stream in order: the next launch
// may use memory that the host has just freed. Errors are whence::Error and name what was requested and what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tensor/device/allocator.h"
#include "tensor/device/device_runtime.h"
#include "tensor/shape.h"

struct CUstream_st;

namespace whence::gpu {

// ---- The device.

// `refusal` says why no GPU can be used: no driver, a driver older than the runtime, no device, an architecture that
// the kernels were not compiled for, or another error in the runtime's words. Determined once; never throws. Under the
// emulator: emulated, name "emulator", count 1, memory the size of its arena, versions 0.
const DeviceFacts& device_facts();

// The architectures that the kernels were compiled for, as given to CMake ("80, 90a-real"), and a status of the CUDA
// runtime that says if the GPU can run them. Not under the emulator. architectures.cu.
std::string compiled_architectures();
int find_kernels();

// ---- Memory. Device memory only, never managed: pages that migrate by themselves hide the cost of a step.

// Returns a block aligned to 256 bytes, or null if there is no more. Allowed while capturing.
void* allocate(std::size_t bytes);
// Waits for what was launched before, which may still use the block.
void deallocate(void* block) noexcept;

// Called when a block is used again: its numbers are undefined. The emulator fills it with NaN, which shows if code
// relies on them.
void unset(void* block, std::size_t bytes);
// Called when a block is cached. The emulator finds code that touches it meanwhile.
void retire(void* block) noexcept;

BlockSource::Room memory_room();  // of the whole device

// Waits for everything launched before, and throws its errors. REQUIRES: nothing is being captured.
void copy_to_cpu(const void* from, void* to, std::size_t bytes);
// In order with kernels; waits for the bytes to arrive. While capturing, the current bytes become a constant of the
// graph, written again by every replay.
void copy_from_cpu(const void* from, void* to, std::size_t bytes);

// ---- Launches.

// A launch, described for errors and counters.
struct LaunchFacts {
  const char* kernel;
  index_t blocks;
  int threads;               // of each block
  std::size_t shared_bytes;  // of each block
};
// "softmax_rows, 96 blocks of 256 threads, 1024 bytes of shared memory"
std::string to_string(const LaunchFacts& facts);

// The stream of all the engine's kernels, products and copies, in order.
CUstream_st* stream();

// Returns the largest shared memory of a block.
std::size_t most_shared_bytes();
// True if tiled attention takes f64, which is a setting of the emulator.
bool tiles_in_f64();

// Before a launch: raises the limit of shared memory if needed. Throws Error if the launch is impossible.
void require_launchable(const LaunchFacts& facts, const void* kernel);

// After a launch: throws Error if it did not start, or an earlier one has failed. With WHENCE_CUDA_SYNC=1 in the
// environment it waits for the kernel, and an error is exactly this kernel's.
void launched(const LaunchFacts& facts);
std::uint64_t launches();  // calls of launched() so far

// Waits until everything launched has ended. Throws Error if something failed. REQUIRES: nothing is being captured.
void synchronise();

// ---- Graphs. Between begin and end nothing runs: kernels, products and copies to the device are recorded.

struct Graph;  // opaque
bool capturing();
void begin_capture();
Graph* end_capture();                       // Error, and no graph, if something inside broke the capture
void abandon_capture() noexcept;            // after an exception inside: discards the recording
void launch_graph(const Graph& graph);      // on the stream, in order
void destroy_graph(Graph* graph) noexcept;  // waits for what was launched before

}  // namespace whence::gpu
