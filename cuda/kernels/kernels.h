// CUDA's kernels: one class, its functions by family in cuda/kernels/*.cu.
#pragma once

#include "tensor/adam.h"
#include "tensor/device/gpu_kernels.h"

namespace whence {

class CudaKernels : public GpuKernels {
 public:
  void fill(const Tensor& out, double value) override;
  void copy(const Tensor& from, const Tensor& to) override;
  void unary(Unary f, UnaryAttributes p, const Tensor& x, const Tensor& y) override;
  void unary_backward(Unary f, UnaryAttributes p, const Tensor& saved, const Tensor& dy, const Tensor& dx) override;
  void unary_second(Unary f, UnaryAttributes p, const Tensor& saved, const Tensor& dy, const Tensor& dx) override;
  void binary(Binary f, const Tensor& a, const Tensor& b, const Tensor& y) override;
  void masked(const Tensor& x, const Tensor& mask, double value, const Tensor& y) override;
  void reduce(Reduction f, const Tensor& x, const Tensor& out) override;
  void argmax(const Tensor& x, const Tensor& out) override;
  void matmul(const Tensor& a, const Tensor& b, const Tensor* bias, double alpha, const Tensor& out) override;
  void softmax(const Tensor& x, const Tensor& mask, const Tensor& y) override;
  void softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) override;
  void norm(const Tensor& x, const Tensor& added, const Tensor& weight, const Tensor& bias, double epsilon,
      const Tensor& sum, const Tensor& y, const Tensor& mean, const Tensor& rstd) override;
  void norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd, const Tensor& dsum,
      const Tensor& dy, const Tensor& dx, const Tensor& dweight, const Tensor& dbias) override;
  void cross_entropy(
      const Tensor& logits, const Tensor& target, index_t ignored, const Tensor& norm, const Tensor& loss) override;
  void cross_entropy_backward(const Tensor& logits, const Tensor& target, index_t ignored, const Tensor& norm,
      const Tensor& dy, double share, const Tensor& dx) override;
  void cumulative_sum(const Tensor& x, bool reverse, const Tensor& y) override;
  void scatter_add_rows(const Tensor& index, const Tensor& from, const Tensor& into) override;
  void gather(const Tensor& x, const Tensor& index, int axis, const Tensor& y) override;
  void sum_by_index(const Tensor& x, const Tensor& index, int axis, const Tensor& y) override;
  void lerp_at(const Tensor& table, const Tensor& position, const Tensor& y) override;
  void lerp_at_backward(const Tensor& table, const Tensor& position, const Tensor& dy, const Tensor& dtable,
      const Tensor& dposition) override;
  void read_by_distance(const Steps& steps, const Tensor& table, const Tensor& y) override;
  void sum_by_distance(const Steps& steps, const Tensor& dy, const Tensor& dtable) override;
  void band_mask(const Band& band, const Tensor& present, const Tensor& mask) override;
  void convolve_keys(const Convolution& at, const Tensor& x, const Tensor& weight, bool adjoint, const Tensor& bias,
      const Tensor& y) override;
  void convolve_keys_weight(const Convolution& at, const Tensor& x, const Tensor& dy, const Tensor& dweight) override;
  void random_uniform(const Tensor& out, const Stream& stream, double low, double high) override;
  void random_normal(const Tensor& out, const Stream& stream, double mean, double deviation) override;
  void adam_all(const AdamStep& step, const Tensor& controls, std::span<const AdamEntry> entries) override;
  void sum_of_squares(std::span<const Tensor> x, double unit, const Tensor& total) override;
  void clip_scale(const Tensor& total, const Tensor& controls) override;

  void copy_all(std::span<const Tensor> from, std::span<const Tensor> to) override;
  void copy_rows(std::span<const Tensor> from, std::span<const Tensor> to, int axis, const Tensor& row) override;
  void matmul_gelu(
      const Tensor& a, const Tensor& b, const Tensor* bias, const Tensor& before, const Tensor& out) override;
  bool matmul_beside(const Tensor& a, std::span<const Tensor> b, std::span<const Tensor> bias,
      std::span<const Tensor> out, const Tensor& row) override;
  void matmul_row_sums(const Tensor& a, const Tensor& b, const Tensor& out, const Tensor& sums) override;
  void matmul_gelu_backward(
      const Tensor& a, const Tensor& b, const Tensor& before, const Tensor& out, const Tensor& sums) override;
  std::size_t most_shared_bytes(DType dtype) const override;
  void attention(const TiledCall& at, std::span<const Tensor> x, const Tensor& output, const Tensor& bin_sums,
      const Tensor& norms) override;
  void attention_backward(const TiledCall& at, std::span<const Tensor> x, const Tensor& output, const Tensor& bin_sums,
      const Tensor& norms, const Tensor& d_output, const Tensor& d_bins, std::span<const Tensor> d) override;
  void mix(const TiledCall& at, std::span<const Tensor> x, const Tensor& output, const Tensor& norms) override;
  void mix_backward(const TiledCall& at, std::span<const Tensor> x, const Tensor& output, const Tensor& norms,
      const Tensor& d_output, std::span<const Tensor> d) override;
  bool makes_terms() const override { return true; }
  void kerple(
      bool power, const Tensor& distances, const Tensor& strength, const Tensor& rate, const Tensor& table) override;
  void kerple_backward(bool power, const Tensor& distances, const Tensor& strength, const Tensor& rate,
      const Tensor& dtable, const Tensor& d_strength, const Tensor& d_rate) override;
  void mix_terms(const MixNetwork& at, DType dtype, const Tensor& table, const Tensor& input, const Tensor& bias,
      const Tensor& output_bias, const Tensor& pairs, const Tensor& u, const Tensor& added) override;
  void mix_terms_backward(const MixNetwork& at, DType dtype, const Tensor& table, const Tensor& input,
      const Tensor& d_pairs, const Tensor& du, const Tensor& d_added, const Tensor& d_table, const Tensor& d_input,
      const Tensor& d_bias, const Tensor& d_output_bias) override;
  Tensor checked_index(const IndexCheck& check, const Tensor& index) override;
  void report_faults() override;
};

}  // namespace whence
