// A ladder: kernels of one formula, each better than the one before for a reason that can be counted. README.md in this
// folder is the guide.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace whence::gpu::ladder {

using Tensors = std::vector<Tensor>;

enum class Count {
  bytes,            // that threads access in global memory
  sectors,          // of 32 bytes that a warp's requests touch
  requests,         // of warps to global memory
  barriers,         // of blocks
  shuffles,         // of warps
  arithmetic,       // additions, products, comparisons
  special,          // exp, sqrt, divisions
  shared_bytes,     // that threads access in shared memory
  shared_requests,  // of warps to shared memory
  conflicts,        // passes of the banks of shared memory beyond the minimum
  on_tensor_cores   // additions and products of tensor cores, not counted in `arithmetic`
};
using Counts = std::map<Count, std::uint64_t>;

struct Rung {
  const char* name;
  std::optional<Count> fewer;  // the count that is lower than on the rung before
  bool packs;                  // runs only if all sizes but the first are multiples of 4
  std::function<void(const Tensors& inputs, const Tensor& output)> run;
};

struct Ladder {
  const char* name;
  const char* formula;
  Shape emulated, on_gpu;  // sizes to show it at, such as [rows, width]
  std::function<Tensors(const Shape& sizes)> inputs;
  std::function<Tensor(const Tensors& inputs)> on_cpu;  // whence's op that results are compared with
  std::vector<Rung> rungs;
};

Ladder softmax();
Ladder layer_norm();
Ladder reduction();
Ladder matmul();
Ladder cope();
Ladder attention();
Ladder cope_attention();
Ladder mix_attention();
std::vector<Ladder> ladders();

// The cost of one run: counts under the emulator (measure_emulated.cpp), milliseconds on a GPU (measure_gpu.cpp).
struct Measured {
  Counts counts;
  double milliseconds = 0;
  double peak_bytes_per_second = 0;
};
Measured measure(const std::function<void()>& run);

// Runs one rung at these sizes. Throws Error if a number differs from the CPU's.
Measured climb(const Ladder& ladder, const Rung& rung, const Shape& sizes);

// Returns every rung of every ladder as a table. Throws Error if a result is wrong, or a promise is not kept.
std::string climb_all(bool emulated);

}  // namespace whence::gpu::ladder
