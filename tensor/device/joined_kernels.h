// Kernels that the core does without, in addition to those of tensor/kernels.h: a GPU's tiles, and its layouts.
#pragma once

#include "tensor/kernels.h"

namespace whence {

struct TiledCall;

class JoinedKernels : public Kernels {
 public:
  // The layouts that GPUs prefer; no effect on the CPU (tensor/device/product_layout.cpp).
  Tensor product_rows(const Tensor& x, index_t rows, index_t width) override;
  bool is_transposed_view(const Tensor& x) override;
  bool is_copied_by_products(const Tensor& x) override;

  // Tiled attention (tensor/tiled_call.h) on a GPU. x are its operands in order. REQUIRES: the device has a
  // program for them (tensor/tiles/gpu_programs.h)
  virtual void attention(const TiledCall& at, std::span<const Tensor> x, const Tensor& output, const Tensor& bin_sums,
      const Tensor& norms);
  // Returns the shared memory that a block of these programs may use in this type; calls that need more are refused.
  // Returns 0 if there are no programs for the type, and no limit if the device is unknown.
  virtual std::size_t most_shared_bytes(DType dtype) const;
  // d: as in TiledCall::backward
  virtual void attention_backward(const TiledCall& at, std::span<const Tensor> x, const Tensor& output,
      const Tensor& bin_sums, const Tensor& norms, const Tensor& d_output, const Tensor& d_bins,
      std::span<const Tensor> d);
  // The same for a head mix (tensor/tiled_call.h).
  virtual void mix(const TiledCall& at, std::span<const Tensor> x, const Tensor& output, const Tensor& norms);
  virtual void mix_backward(const TiledCall& at, std::span<const Tensor> x, const Tensor& output, const Tensor& norms,
      const Tensor& d_output, std::span<const Tensor> d);
};

JoinedKernels& joined_kernels(Device device);    // throws Error if this build has no such device
JoinedKernels& joined_kernels(const Tensor& x);  // those that kernels(x) returns

}  // namespace whence
