// The CUDA runtime as the rest of cuda/ sees it, free of CUDA's own headers. runtime.cpp asks the driver;
// cuda/emulator/runtime.cpp is the twin that runs without one. Everything goes on one stream in order: the next launch
// may use memory that the host has just freed. Errors are whence::Error and name what was asked and what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tensor/device/facts.h"
#include "tensor/shape.h"

struct CUstream_st;

namespace whence::gpu {

// ---- What there is.

// `refusal` says why no GPU can be used: no driver, a driver older than the runtime, no device, an architecture that
// the kernels were not compiled for, or another error in the runtime's words. Asked once; never throws. Under the
// emulator: emulated, name "emulator", count 1, memory the size of its arena, versions 0.
const DeviceFacts& device_facts();

// What the kernels were compiled for, as CMake was given it ("80, 90a-real"), and a status of the CUDA runtime that says
// whether the GPU can run them. Not under the emulator. architectures.cu.
std::string compiled_architectures();
int find_kernels();

// ---- Memory. Device memory only, never managed: pages that move by themselves hide what a step costs.

// Aligned to 256 bytes; null when there is no more. Allowed while capturing.
void* allocate(std::size_t bytes);
// Waits for what was launched before, which may still use the block.
void deallocate(void* block) noexcept;

// A block is used again: nobody may rely on its numbers. The emulator fills it with NaN, so
// that it shows when somebody does.
void unset(void* block, std::size_t bytes);
// A block waits for its next use. The emulator finds who touches it meanwhile.
void retire(void* block) noexcept;

struct MemoryRoom {
  std::size_t free = 0, total = 0;  // bytes, of the whole device
};
MemoryRoom memory_room();

// Waits for everything launched before, and throws its errors. Error while capturing: numbers do not exist yet.
void copy_to_cpu(const void* from, void* to, std::size_t bytes);
// In order with kernels. Returns when `from` may change, perhaps before the bytes have arrived. While capturing, the
// bytes as they are now become a constant of the graph, written again by every replay.
void copy_from_cpu(const void* from, void* to, std::size_t bytes);

// Where a library that is loaded at run time (NCCL) finds the bytes at a device address: there; of the emulated GPU, where
// the host has them.
void* address_for_libraries(const void* address);

// ---- Launches.

// A launch, for errors and counters.
struct LaunchFacts {
  const char* kernel;
  index_t blocks;
  int threads;               // of each block
  std::size_t shared_bytes;  // of each block
};
// "softmax_rows, 96 blocks of 256 threads, 1024 bytes of shared memory"
std::string to_string(const LaunchFacts& facts);

// The stream on which all kernels, products and copies of the engine go, in order.
CUstream_st* stream();

// What a block may have of shared memory.
std::size_t most_shared_bytes();
// True where attention in tiles takes f64, as the emulator can be told to.
bool tiles_in_f64();

// Before a launch: raises the limit of shared memory where needed. Error when the launch is impossible.
void require_launchable(const LaunchFacts& facts, const void* kernel);

// After a launch: Error when it did not start. Remembers it with the call site of the op, for errors that show later.
// With WHENCE_CUDA_SYNC=1 in the environment it waits for the kernel, and an error is exactly this kernel's.
void launched(const LaunchFacts& facts);
std::uint64_t launches();  // so far: calls of launched()

// Waits until everything launched has ended. Error that names the kernels that may have failed. Error while capturing.
void synchronise();
// Whether it has, without waiting. Error when something failed.
bool all_has_ended();

// ---- Graphs. Between begin and end nothing runs: kernels, products and copies to the device are recorded.

struct Graph;  // opaque
bool capturing();
void begin_capture();                       // Error when one is under way
Graph* end_capture();                       // Error, and no graph, when something inside broke the capture
void abandon_capture() noexcept;            // after an exception inside: what was recorded is thrown away
void launch_graph(const Graph& graph);      // on the stream, in order
void destroy_graph(Graph* graph) noexcept;  // waits for what was launched before

}  // namespace whence::gpu
