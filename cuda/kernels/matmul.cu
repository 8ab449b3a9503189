// Matrix products: cuBLAS for 16 to 64 bit, and cuBLASLt where it can fuse what follows. Dual numbers take plain loops.
#include <algorithm>
#include <optional>

#include "cuda/kernels/kernels.h"
#include "cuda/library/blas.h"
#include "tensor/device/launch.h"
#include "tensor/strided_index.h"
#include "tensor/strided_loop.h"

namespace whence {
namespace {

// The last two axes of x for cuBLAS; nothing when neither of them is contiguous.
std::optional<BlasMatrix> blas_matrix(const Tensor& x) {
  const index_t rows = x.size(-2), columns = x.size(-1), row_stride = x.strides()[-2], column_stride = x.strides()[-1];
  if ((column_stride == 1 || columns == 1) && (row_stride >= columns || rows == 1))
    return BlasMatrix{x.bytes(), false, rows == 1 ? columns : row_stride, 0};
  if ((row_stride == 1 || rows == 1) && (column_stride >= rows || columns == 1))
    return BlasMatrix{x.bytes(), true, columns == 1 ? rows : column_stride, 0};
  return std::nullopt;
}

Tensor readable(Kernels& kernels, const Tensor& x) {
  if (blas_matrix(x)) return x;
  const Tensor copied = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels.copy(x, copied);
  return copied;
}

template <class Axes> Axes without_last(const Axes& axes, int count) {
  Axes result;
  for (int axis = 0; axis + count < axes.rank(); ++axis) result.push_back(axes[axis]);
  return result;
}

// Where all matrices of a batch share b and the rows of a follow each other evenly, the batch is one tall matrix.
std::optional<Tensor> tall_matrix(const Tensor& a, const Tensor& b) {
  const StridedLoop<1> batch_of_b(without_last(b.shape(), 2), {without_last(b.strides(), 2)});
  if (batch_of_b.inner_extent() != batch_of_b.count() || (batch_of_b.count() > 1 && batch_of_b.inner_stride(0) != 0))
    return std::nullopt;
  const StridedLoop<1> rows(without_last(a.shape(), 1), {without_last(a.strides(), 1)});
  if (rows.inner_extent() != rows.count()) return std::nullopt;
  return a.view({rows.count(), a.size(-1)}, {rows.inner_stride(0), a.strides()[-1]});
}

// The matrices of a batch, evenly apart: where they lie otherwise (heads inside tokens, one matrix for some of a batch),
// they are copied first, so that a batch of any shape is one call.
std::optional<index_t> step_of_batch(const Tensor& x) {
  const StridedLoop<1> batch(without_last(x.shape(), 2), {without_last(x.strides(), 2)});
  if (batch.inner_extent() != batch.count()) return std::nullopt;
  return batch.inner_stride(0);
}
Tensor evenly_apart(Kernels& kernels, const Tensor& x) {
  if (step_of_batch(x)) return x;
  const Tensor copied = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels.copy(x, copied);
  return copied;
}

// From row to row of out, which are further apart than they are long where `linear` lays them out for wide loads.
index_t leading_of(const Tensor& out) { return std::max(out.strides()[-2], out.size(-1)); }

void multiply_batch(
    Kernels& kernels, const Tensor& given_a, const Tensor& given_b, double alpha, double beta, const Tensor& out) {
  const Tensor a = evenly_apart(kernels, given_a), b = evenly_apart(kernels, given_b);
  const index_t m = a.size(-2), n = b.size(-1), k = a.size(-1);
  BlasProduct product{out.dtype(), m, n, k, *blas_matrix(a), *blas_matrix(b), out.bytes(), alpha, beta,
      out.numel() / (m * n), leading_of(out)};
  product.a.step = *step_of_batch(a), product.b.step = *step_of_batch(b);
  multiply(product);
}

// out already holds beta out. One thread per element.
struct DualProduct {
  StridedIndex<2> batch;
  const Dual *a, *b;
  Dual* out;
  index_t m, n, k, a_row, a_column, b_row, b_column;
  double alpha;
  bool adds;
  WHENCE_HD void operator()(index_t i) const {
    const auto at = batch(i / n / m);
    const Dual *row = a + at[0] + i / n % m * a_row, *column = b + at[1] + i % n * b_column;
    Dual total = 0;
    for (index_t l = 0; l < k; ++l) total += row[l * a_column] * column[l * b_row];
    out[i] = adds ? out[i] + Dual(alpha) * total : Dual(alpha) * total;
  }
};

void multiply_duals(const Tensor& a, const Tensor& b, double alpha, bool adds, const Tensor& out) {
  const DualProduct body{{without_last(out.shape(), 2), {without_last(a.strides(), 2), without_last(b.strides(), 2)}},
      a.data<Dual>(), b.data<Dual>(), out.data<Dual>(), a.size(-2), b.size(-1), a.size(-1), a.strides()[-2],
      a.strides()[-1], b.strides()[-2], b.strides()[-1], alpha, adds};
  launch("matmul", out.device(), out.numel(), body, a.size(-1));
}

// A product that is one matrix by one matrix, as a layer's is:
// with everything that follows it in one kernel. False: nothing was done.
bool multiply_fused(
    Kernels& kernels, const Tensor& a, const Tensor& b, double alpha, const BlasEpilogue& epilogue, const Tensor& out) {
  const Tensor left = readable(kernels, a), right = readable(kernels, b);
  const std::optional<Tensor> tall = tall_matrix(left, right);
  if (!tall || !blas_matrix(*tall)) return false;
  const Tensor one = right.view({right.size(-2), right.size(-1)}, {right.strides()[-2], right.strides()[-1]});
  const BlasProduct product{out.dtype(), tall->size(0), one.size(1), one.size(0), *blas_matrix(*tall),
      *blas_matrix(one), out.bytes(), alpha, 0, 1, leading_of(out)};
  return whence::multiply_fused(product, epilogue);
}

// out = bias in every row: what a product is added to.
void fill_rows(Kernels& kernels, const Tensor& bias, const Tensor& out) {
  Strides strides = Strides::filled(out.rank(), 0);
  strides[-1] = bias.strides()[0];
  kernels.copy(bias.view(out.shape(), strides), out);
}

bool has_blas(DType dtype) { return dtype != DType::dual; }

}  // namespace

void CudaKernels::matmul(const Tensor& a, const Tensor& b, const Tensor* bias, double alpha, const Tensor& out) {
  if (out.numel() == 0) return;
  const bool empty_sum = a.size(-1) == 0;
  if (bias && !empty_sum && has_blas(out.dtype()) && bias->is_contiguous() &&
      multiply_fused(*this, a, b, alpha, {.bias = bias->bytes()}, out)) {
    return;
  }
  if (bias)
    fill_rows(*this, *bias, out);
  else if (empty_sum)
    fill(out, 0);
  if (empty_sum) return;
  if (out.dtype() == DType::dual) return multiply_duals(a, b, alpha, bias != nullptr, out);
  const Tensor left = readable(*this, a), right = readable(*this, b);
  const double beta = bias ? 1 : 0;
  const std::optional<Tensor> tall = tall_matrix(left, right);
  if (!tall || !blas_matrix(*tall)) return multiply_batch(*this, left, right, alpha, beta, out);
  const index_t n = right.size(-1);
  const Tensor one = right.view({right.size(-2), n}, {right.strides()[-2], right.strides()[-1]});
  multiply_batch(*this, *tall, one, alpha, beta, out.view({tall->size(0), n}, {leading_of(out), 1}));
}

void CudaKernels::matmul_gelu(
    const Tensor& a, const Tensor& b, const Tensor* bias, const Tensor& before, const Tensor& out) {
  const bool fits = out.numel() > 0 && a.size(-1) > 0 && has_blas(out.dtype()) && (!bias || bias->is_contiguous());
  const BlasEpilogue epilogue{.bias = bias ? bias->bytes() : nullptr, .gelu = true, .before_gelu = before.bytes()};
  if (fits && multiply_fused(*this, a, b, 1, epilogue, out)) return;
  JoinedKernels::matmul_gelu(a, b, bias, before, out);
}

void CudaKernels::matmul_row_sums(const Tensor& a, const Tensor& b, const Tensor& out, const Tensor& sums) {
  const bool fits = out.numel() > 0 && a.size(-1) > 0 && has_blas(out.dtype());
  if (fits && multiply_fused(*this, a, b, 1, {.row_sums = sums.bytes()}, out)) return;
  JoinedKernels::matmul_row_sums(a, b, out, sums);
}

void CudaKernels::matmul_gelu_backward(
    const Tensor& a, const Tensor& b, const Tensor& before, const Tensor& out, const Tensor& sums) {
  const bool fits = out.numel() > 0 && a.size(-1) > 0 && has_blas(out.dtype());
  const BlasEpilogue epilogue{.gelu_at = before.bytes(), .column_sums = sums.defined() ? sums.bytes() : nullptr};
  if (fits && multiply_fused(*this, a, b, 1, epilogue, out)) return;
  JoinedKernels::matmul_gelu_backward(a, b, before, out, sums);
}

}  // namespace whence
