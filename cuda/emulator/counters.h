// Counts of kernels' work, per kernel name. They do not depend on the order of threads, so they test performance on a
// machine without a GPU.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "cuda/runtime/runtime.h"

namespace whence::gpu::emulator {

struct Counters {
  std::uint64_t launches = 0;
  std::uint64_t blocks = 0, threads = 0;  // of all launches together; indices of index-style ops, all that these have
  std::uint64_t arithmetic = 0;           // additions, subtractions, products, comparisons of Number; 2 for a b + c
  std::uint64_t divisions = 0, special = 0;           // special: exp, log, sqrt, sin, cos, tanh, ...
  std::uint64_t global_read = 0, global_written = 0;  // bytes accessed by threads, before any cache
  std::uint64_t shared_read = 0, shared_written = 0;  // bytes
  std::uint64_t barriers = 0;                         // sync, once per block
  std::uint64_t warp_syncs = 0, shuffles = 0;         // once per warp
  std::uint64_t atomics = 0;                          // once per thread
  std::uint64_t mma_16 = 0, mma_8 = 0;                // products of tensor cores, m16n8k16 and m16n8k8; once per warp
  std::uint64_t fragment_loads = 0;                   // of four matrices (ldmatrix); once per warp
  std::uint64_t copied_ahead = 0;                     // bytes of shared memory that copies ahead filled
  std::uint64_t shared_bytes = 0;                     // of a block, the largest of all launches

  // With Settings::costs (costs.h). A request is the accesses of a warp's lanes at once.
  std::uint64_t global_requests = 0;
  std::uint64_t sectors = 0, least_sectors = 0;  // of 32 bytes; the smallest number that could hold the different bytes
  std::uint64_t sectors_written = 0;  // one for each request that writes to it: more than the bytes fill, if in parts
  std::uint64_t shared_requests = 0;
  std::uint64_t wavefronts = 0, least_wavefronts = 0;  // passes of the banks of shared memory; the same without
                                                       // conflicts
  std::uint64_t most_ways = 0;                         // the most words of one bank in one request
  std::uint64_t not_noted = 0;                         // accesses beyond the limit between two meetings of a warp
  // The place in the source with the most sectors or wavefronts beyond the minimum in one launch, as (number, place).
  std::pair<std::uint64_t, std::int32_t> worst_sectors{}, worst_wavefronts{};

  Counters& operator+=(const Counters& other);
};

// Returns the counts since the start or the last reset_counters(). Products are counted under "matmul f32" and so on,
// copies under "copy to cpu" and "copy from cpu" with their bytes.
std::map<std::string, Counters> counters();
void reset_counters();

// Returns "worst at softmax.cu:104", for a message about sectors or wavefronts, or "" if none exceed the minimum.
std::string worst_place(const std::pair<std::uint64_t, std::int32_t>& worst);

// A table for people: one line per kernel, the most launches first, and a line of sums. With WHENCE_EMULATOR_COUNTS=1
// in the environment any program prints it on standard error when it ends.
std::string counters_table();

// Called by the code that runs kernels.
void count(const char* kernel, const Counters& more);

}  // namespace whence::gpu::emulator
