// CUDA's kernels: one class, its functions by family in cuda/*.cu.
#pragma once

#include "tensor/kernels.h"

namespace whence {

class CudaKernels final : public Kernels {
 public:
  // copy.cu
  void fill(const Tensor& out, double value) override;
  void copy(const Tensor& from, const Tensor& to) override;
  void keep(const Tensor& x, const Tensor& mask, double value, const Tensor& y) override;
  // pointwise.cu
  void unary(Unary f, UnaryAttributes p, const Tensor& x, const Tensor& y) override;
  void unary_backward(Unary f, UnaryAttributes p, const Tensor& kept, const Tensor& dy, const Tensor& dx) override;
  void unary_second(Unary f, UnaryAttributes p, const Tensor& kept, const Tensor& dy, const Tensor& dx) override;
  void binary(Binary f, const Tensor& a, const Tensor& b, const Tensor& y) override;
  // reduce.cu
  void reduce(Reduction f, const Tensor& x, const Tensor& out) override;
  void argmax(const Tensor& x, const Tensor& out) override;
  // matmul.cu
  void matmul(const Tensor& a, const Tensor& b, const Tensor* bias, double alpha, const Tensor& out) override;
  // softmax.cu, norm.cu
  void softmax(const Tensor& x, const Tensor& mask, const Tensor& y) override;
  void softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) override;
  void layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, const Tensor& y, const Tensor& mean,
                  const Tensor& rstd) override;
  void layer_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd, const Tensor& dy,
                           const Tensor& dx, const Tensor& dweight, const Tensor& dbias) override;
  // scan.cu, scatter.cu
  void cumulative_sum(const Tensor& x, bool reverse, const Tensor& y) override;
  void scatter_add_rows(const Tensor& index, const Tensor& from, const Tensor& into) override;
  // random.cu, adam.cu
  void random_uniform(const Tensor& out, const Stream& stream, double low, double high) override;
  void random_normal(const Tensor& out, const Stream& stream, double mean, double deviation) override;
  void adam(const AdamStep& step, const Tensor& gradient, const Tensor& weight, const Tensor& first, const Tensor& second) override;
};

}  // namespace whence
