// Kernels that GPUs alone have, in addition to those of tensor/kernels.h: tiles, and layouts for products.
#pragma once

#include <limits>

#include "tensor/kernels.h"

namespace whence {

struct TiledCall;

class GpuKernels : public Kernels {
 public:
  // tensor/device/product_layout.cpp; no effect on the planned CPU
  Tensor product_rows(const Tensor& x, index_t rows, index_t width) override;
  bool is_transposed_view(const Tensor& x) override;
  bool is_copied_by_products(const Tensor& x) override;

  // Tiled attention (tensor/tiled_call.h). x are its operands in order. REQUIRES: the device has a program for them
  // (tensor/tiles/gpu_programs.h)
  virtual void attention(const TiledCall& at, std::span<const Tensor> x, const Tensor& output, const Tensor& bin_sums,
      const Tensor& norms) = 0;
  // d: as in TiledCall::backward
  virtual void attention_backward(const TiledCall& at, std::span<const Tensor> x, const Tensor& output,
      const Tensor& bin_sums, const Tensor& norms, const Tensor& d_output, const Tensor& d_bins,
      std::span<const Tensor> d) = 0;
  // The same for a head mix.
  virtual void mix(const TiledCall& at, std::span<const Tensor> x, const Tensor& output, const Tensor& norms) = 0;
  virtual void mix_backward(const TiledCall& at, std::span<const Tensor> x, const Tensor& output, const Tensor& norms,
      const Tensor& d_output, std::span<const Tensor> d) = 0;
  // Returns the shared memory that a block of these programs may use in this type; calls that need more are refused.
  // Returns 0 if there are no programs for the type.
  virtual std::size_t most_shared_bytes(DType dtype) const { return of_any_gpu(dtype); }
  static std::size_t of_any_gpu(DType dtype) { return fits_float(dtype) ? std::numeric_limits<std::size_t>::max() : 0; }
};

// Returns those that kernels(x) returns. REQUIRES: x is on a GPU
inline GpuKernels& gpu_kernels(const Tensor& x) { return static_cast<GpuKernels&>(kernels(x)); }

}  // namespace whence
