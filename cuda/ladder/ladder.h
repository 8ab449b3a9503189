// A ladder: kernels of one formula, each better than the one before for a reason that can be counted. README.md here is
// the guide.
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
  bytes,            // that threads ask of global memory
  sectors,          // of 32 bytes that a warp's requests touch
  requests,         // of warps to global memory
  barriers,         // of blocks
  shuffles,         // of warps
  arithmetic,       // additions, products, comparisons
  special,          // exp, sqrt, divisions
  shared_bytes,     // that threads ask of shared memory
  shared_requests,  // of warps to shared memory
  conflicts,        // turns that banks of shared memory take beyond the least
  on_tensor_cores   // additions and products of tensor cores, which are not in `arithmetic`
};
using Counts = std::map<Count, std::uint64_t>;

struct Rung {
  const char* name;
  std::optional<Count> fewer;  // what it does less of than the rung before
  bool packs;                  // only where all sizes but the first are multiples of 4
  std::function<void(const Tensors& inputs, const Tensor& output)> run;
};

struct Ladder {
  const char* name;
  const char* formula;
  Shape emulated, on_gpu;  // sizes to show it at, such as [rows, width]
  std::function<Tensors(const Shape& sizes)> inputs;
  std::function<Tensor(const Tensors& inputs)> on_cpu;  // the op of the house that it is held to
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

// What one run cost: counts under the emulator (measure_emulated.cpp), milliseconds on a GPU (measure_gpu.cpp).
struct Measured {
  Counts counts;
  double milliseconds = 0;
  double peak_bytes_per_second = 0;
};
Measured measure(const std::function<void()>& run);

// One rung at these sizes. Error when a number differs from the CPU's.
Measured climb(const Ladder& ladder, const Rung& rung, const Shape& sizes);

// Every rung of every ladder as a table. Error when one is wrong, or keeps not what it promises.
std::string climb_all(bool emulated);

}  // namespace whence::gpu::ladder
