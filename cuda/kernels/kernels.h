// CUDA's kernels: one class, its functions by family in cuda/kernels/*.cu.
#pragma once

#include "tensor/adam.h"
#include "tensor/joined_kernels.h"

namespace whence {

class CudaKernels final : public JoinedKernels {
 public:
#define WHENCE_KERNEL override
#include "tensor/kernel_list.h"

  void cast(const Tensor& from, const Tensor& to);  // cast.cu: a copy into another dtype
  void copy_all(std::span<const Tensor> from, std::span<const Tensor> to) override;
  void matmul_gelu(
      const Tensor& a, const Tensor& b, const Tensor* bias, const Tensor& before, const Tensor& out) override;
  void matmul_row_sums(const Tensor& a, const Tensor& b, const Tensor& out, const Tensor& sums) override;
  void matmul_gelu_backward(
      const Tensor& a, const Tensor& b, const Tensor& before, const Tensor& out, const Tensor& sums) override;
  void causal_softmax(const Tensor& x, index_t first_row, const Tensor& y) override;
  void causal_softmax_backward(const Tensor& y, const Tensor& dy, index_t first_row, const Tensor& dx) override;
  void causal_softmax_by_distance(
      const Tensor& x, const Steps& steps, const Tensor& table, index_t first_row, const Tensor& y) override;
  Tensor checked_index(const IndexCheck& check, const Tensor& index) override;
  void report_faults() override;
};

}  // namespace whence
