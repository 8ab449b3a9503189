// Matrix products: cuBLAS for 16 to 64 bits, and cuBLASLt if it can fuse what follows.
#include <algorithm>
#include <optional>

#include "cuda/kernels/few_rows.h"
#include "cuda/kernels/kernels.h"
#include "cuda/library/blas.h"
#include "tensor/device/product_layout.h"
#include "tensor/raw.h"
#include "tensor/shape.h"

namespace whence {
namespace {

// Returns the last two axes of x for cuBLAS, or nothing if neither is contiguous.
std::optional<BlasMatrix> blas_matrix(const Tensor& x) {
  const index_t rows = x.size(-2), columns = x.size(-1), row_stride = x.strides()[-2], column_stride = x.strides()[-1];
  if ((column_stride == 1 || columns == 1) && (row_stride >= columns || rows == 1))
    return BlasMatrix{x.bytes(), false, rows == 1 ? columns : row_stride, 0};
  if ((row_stride == 1 || rows == 1) && (column_stride >= rows || columns == 1))
    return BlasMatrix{x.bytes(), true, columns == 1 ? rows : column_stride, 0};
  return std::nullopt;
}

Tensor readable(const Tensor& x) { return blas_matrix(x) ? x : raw::copy(x); }

// Returns the stride of a batch's matrices, or nothing if they are not evenly spaced (heads inside tokens, a matrix
// shared by part of a batch). Those are copied first, so that a batch of any shape is one call.
std::optional<index_t> step_of_batch(const Tensor& x) {
  return even_step(x.shape().leading(-2), x.strides().leading(-2));
}
Tensor evenly_apart(const Tensor& x) { return step_of_batch(x) ? x : raw::copy(x); }

// The stride of out's rows, which exceeds their length if product_rows() made them.
index_t leading_of(const Tensor& out) { return std::max(out.strides()[-2], out.size(-1)); }

void multiply_batch(const Tensor& given_a, const Tensor& given_b, double alpha, double beta, const Tensor& out) {
  const Tensor a = evenly_apart(given_a), b = evenly_apart(given_b);
  const index_t m = a.size(-2), n = b.size(-1), k = a.size(-1);
  BlasProduct product{out.dtype(), m, n, k, *blas_matrix(a), *blas_matrix(b), out.bytes(), alpha, beta,
      out.numel() / (m * n), leading_of(out)};
  product.a.step = *step_of_batch(a), product.b.step = *step_of_batch(b);
  multiply(product);
}

// Returns the matrices along the last axis of the batch as one tall matrix, if they are stored so.
std::optional<Tensor> one_below_the_other(const Tensor& x) {
  const index_t count = x.size(-3), rows = x.size(-2), step = rows == 1 ? x.strides()[-3] : x.strides()[-2];
  if (x.strides()[-3] != rows * step) return std::nullopt;
  Shape shape = x.shape().without(x.rank() - 3);
  Strides strides = x.strides().without(x.rank() - 3);
  shape[-2] = count * rows, strides[-2] = step;
  return x.view(shape, strides);
}

bool multiply_few_rows(
    const Tensor& a, const Tensor& b, const Tensor* bias, double alpha, const Tensor* before, const Tensor& out) {
  const std::span<const Tensor> biases(bias, bias ? 1 : 0);
  return a.rank() == 2 && b.rank() == 2 && gpu::multiply_few_rows(a, {&b, 1}, biases, alpha, before, out);
}

// A product of one matrix by one matrix, as a layer's is, with everything that follows it in one kernel. Returns false
// if nothing was done.
bool multiply_fused(const Tensor& a, const Tensor& b, double alpha, const BlasEpilogue& epilogue, const Tensor& out) {
  if (out.rank() != 2 || out.numel() == 0 || a.size(-1) == 0) return false;
  if (aligned_extents(a, b, out)) return false;
  const Tensor left = readable(a), right = readable(b);
  const BlasProduct product{out.dtype(), left.size(0), right.size(1), left.size(1), *blas_matrix(left),
      *blas_matrix(right), out.bytes(), alpha, 0, 1, leading_of(out)};
  return whence::multiply_fused(product, epilogue);
}

}  // namespace

void CudaKernels::matmul(const Tensor& a, const Tensor& b, const Tensor* bias, double alpha, const Tensor& out) {
  if (out.numel() == 0) return;
  if (out.rank() > 3 && out.size(-3) > 1 && b.strides()[-3] == 0) {  // b serves all of them, as keys serve their group
    const auto tall = one_below_the_other(a), made = one_below_the_other(out);
    if (tall && made) return matmul(*tall, raw::select(b, b.rank() - 3, 0), bias, alpha, *made);
  }
  if (const auto extents = aligned_extents(a, b, out)) {
    const AlignedProduct aligned = aligned_product(*extents, a, b, bias, out);
    matmul(aligned.a, aligned.b, bias ? &aligned.bias : nullptr, alpha, aligned.out);
    if (&aligned.out.storage() != &out.storage())
      copy(raw::slice(raw::slice(aligned.out, -2, 0, out.size(-2)), -1, 0, out.size(-1)), out);
    return;
  }
  if (raw::has_zeros_between_rows(out)) {
    const index_t width = out.size(1), apart = aligned_extent(width, out.dtype());
    fill(out.view({out.size(0), apart - width}, out.strides(), width), 0);
  }
  if (multiply_few_rows(a, b, bias, alpha, nullptr, out)) return;
  const bool empty_sum = a.size(-1) == 0;
  if (bias && bias->is_contiguous() && multiply_fused(a, b, alpha, {.bias = bias->bytes()}, out)) return;
  if (bias)
    copy(raw::expand(*bias, out.shape()), out);  // the product is added to it
  else if (empty_sum)
    fill(out, 0);
  if (empty_sum) return;
  multiply_batch(readable(a), readable(b), alpha, bias ? 1 : 0, out);
}

void CudaKernels::matmul_gelu(
    const Tensor& a, const Tensor& b, const Tensor* bias, const Tensor& before, const Tensor& out) {
  if (multiply_few_rows(a, b, bias, 1, &before, out)) return;
  const BlasEpilogue epilogue{.bias = bias ? bias->bytes() : nullptr, .gelu = true, .before_gelu = before.bytes()};
  const bool fits = size_of(out.dtype()) == 2 && (!bias || bias->is_contiguous());
  if (fits && multiply_fused(a, b, 1, epilogue, out)) return;
  Kernels::matmul_gelu(a, b, bias, before, out);
}

Tensor CudaKernels::matmul_beside(const Tensor& a, std::span<const Tensor> b, std::span<const Tensor> bias) {
  if (a.size(0) > gpu::most_few_rows) return {};
  index_t columns = 0;
  for (const Tensor& each : b) columns += each.size(1);
  const Tensor out = Tensor::like(a, {a.size(0), columns});
  return gpu::multiply_few_rows(a, b, bias, 1, nullptr, out) ? out : Tensor();
}

void CudaKernels::matmul_row_sums(const Tensor& a, const Tensor& b, const Tensor& out, const Tensor& sums) {
  if (multiply_fused(a, b, 1, {.row_sums = sums.bytes()}, out)) return;
  Kernels::matmul_row_sums(a, b, out, sums);
}

// In place: without a second tensor of out's size.
void CudaKernels::matmul_gelu_backward(
    const Tensor& a, const Tensor& b, const Tensor& before, const Tensor& out, const Tensor& sums) {
  matmul(a, b, nullptr, 1, out);
  unary_backward(functions::Gelu{}, {}, before, out, out);
  if (sums.defined()) reduce(Reduction::sum, out, sums.view({1, out.size(1)}, {out.size(1), 1}));
}

}  // namespace whence
