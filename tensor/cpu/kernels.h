// The CPU's kernels: one class, its functions by family in *.cpp.
#pragma once

#include "tensor/adam.h"
#include "tensor/joined_kernels.h"

namespace whence {

// Elements in a chunk of work: enough to hide the start of a thread, few enough to stay in cache.
inline constexpr index_t cpu_grain = 16384;

// How many rows of `width` elements make a chunk.
constexpr index_t rows_per_chunk(index_t width) { return width >= cpu_grain ? 1 : cpu_grain / (width > 0 ? width : 1); }

class CpuKernels final : public JoinedKernels {
 public:
#define WHENCE_KERNEL override
#include "tensor/kernel_list.h"

  Tensor checked_index(const IndexCheck& check, const Tensor& index) override;
};

}  // namespace whence
