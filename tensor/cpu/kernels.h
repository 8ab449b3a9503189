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
  // tiled_attention.cpp
  bool has_tiled_attention() const override { return true; }
  void attention(const TiledAttention& at, const TiledAttention::Operands& x, const Tensor& output,
      const Tensor& bin_sums, const Tensor& norms) override;
  void attention_backward(const TiledAttention& at, const TiledAttention::Operands& x, const Tensor& output,
      const Tensor& bin_sums, const Tensor& norms, const Tensor& d_output, const Tensor& d_bins,
      const TiledAttention::Operands& d) override;
  // tiled_mix.cpp
  void mixed_attention(
      const TiledMix& at, const TiledMix::Operands& x, const Tensor& output, const Tensor& norms) override;
  void mixed_attention_backward(const TiledMix& at, const TiledMix::Operands& x, const Tensor& output,
      const Tensor& norms, const Tensor& d_output, const TiledMix::Operands& d) override;
};

}  // namespace whence
