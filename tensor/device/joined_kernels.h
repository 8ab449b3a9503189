// Kernels that a device may have besides those that it must have (tensor/kernels.h): several in one, for the sake of
// time, with a default that runs them one after the other.
#pragma once

#include "tensor/kernels.h"

namespace whence {

struct TiledAttention;
struct TiledMix;

class JoinedKernels : public Kernels {
 public:
  // As GPUs like them, on a GPU (tensor/device/product_layout.cpp).
  Tensor product_rows(const Tensor& x, index_t rows, index_t width) override;
  bool lies_turned(const Tensor& x) override;
  bool is_copied_by_products(const Tensor& x) override;

  // from[k] into to[k], for each k
  virtual void copy_all(std::span<const Tensor> from, std::span<const Tensor> to);

  // Returns a [m k] b [k n] + bias [n], [m n], where b are matrices side by side, and bias is of each or of none; undefined
  // where a product with a copy of all of them is faster, or as fast.
  virtual Tensor matmul_beside(const Tensor& a, std::span<const Tensor> b, std::span<const Tensor> bias);
  // before [m n] = a [m k] b [k n] (+ bias [n]), out [m n] = gelu(before), the tanh form. A device that does it in one
  // (a GPU, in 16 bit alone) takes gelu of the sum before rounding it.
  virtual void matmul_gelu(
      const Tensor& a, const Tensor& b, const Tensor* bias, const Tensor& before, const Tensor& out);
  // out [m n] = (a [m k] b [k n]) gelu'(before [m n]), sums [n] = the sums of out's columns (may be undefined)
  virtual void matmul_gelu_backward(
      const Tensor& a, const Tensor& b, const Tensor& before, const Tensor& out, const Tensor& sums);

  // softmax of x [... i j], contiguous, where row i has the entries up to first_row + i alone. A device that goes by
  // this fact reads no others; the default makes a mask of it.
  virtual void causal_softmax(const Tensor& x, index_t first_row, const Tensor& y);
  virtual void causal_softmax_backward(const Tensor& y, const Tensor& dy, index_t first_row, const Tensor& dx);
  // y = causal_softmax(x + what the pairs read of `table` [h n] by their steps (tensor/pairs.h)), x [b h i j]
  virtual void causal_softmax_by_distance(
      const Tensor& x, const Steps& steps, const Tensor& table, index_t first_row, const Tensor& y);

  // Attention in tiles (tensor/tiles/attention_kernel.h), of a GPU; x are its operands, in their order. REQUIRES: it has a
  // program for them (tensor/tiles/gpu_programs.h)
  virtual void attention(const TiledAttention& at, std::span<const Tensor> x, const Tensor& output,
      const Tensor& bin_sums, const Tensor& norms);
  // Shared memory that a block of threads may have of these programs in this type: what needs more is refused. 0 where they have none
  // in it; where the device is not known, any number.
  virtual std::size_t most_shared_bytes(DType dtype) const;
  // d: as in TiledAttention::backward
  virtual void attention_backward(const TiledAttention& at, std::span<const Tensor> x, const Tensor& output,
      const Tensor& bin_sums, const Tensor& norms, const Tensor& d_output, const Tensor& d_bins,
      std::span<const Tensor> d);
  // The same of a head mix (tensor/tiles/mix_kernel.h).
  virtual void mix(const TiledMix& at, std::span<const Tensor> x, const Tensor& output, const Tensor& norms);
  virtual void mix_backward(const TiledMix& at, std::span<const Tensor> x, const Tensor& output, const Tensor& norms,
      const Tensor& d_output, std::span<const Tensor> d);
};

JoinedKernels& joined_kernels(Device device);    // of any device; Error when this build has no such device
JoinedKernels& joined_kernels(const Tensor& x);  // as kernels(x)
JoinedKernels& plain_joined_kernels();

}  // namespace whence
