// Products of matrices as loops over rows of b. A whole build multiplies large matrices of all numbers but duals in
// tiles (tensor/cpu/products.cpp).
#include <algorithm>

#include "tensor/kernels/rows.h"
#include "tensor/parallel.h"
#include "tensor/raw.h"
#include "tensor/strided_index.h"

namespace whence {

static constexpr index_t rows_together = 8, widest_strip = 512;

// out_ij = bias_j + sum_l (alpha a_il) b_lj, for each matrix of a batch. Some rows of a at a time, so that b is read once
// for them from memory, and a strip of its columns. Rows of a are contiguous, and either rows or columns of b.
template <class C>
static void multiply_matrices(
    const Tensor& a, const Tensor& b, bool by_columns, const C* bias, C alpha, const Tensor& out) {
  const index_t m = out.size(-2), n = out.size(-1), depth = a.size(-1), a_row = a.strides()[-2];
  const index_t b_row = b.strides()[-2], b_column = by_columns ? b.strides()[-1] : 1;
  const index_t strip = std::clamp<index_t>(65536 / std::max<index_t>(depth, 1) / 16 * 16, 16, widest_strip);
  const index_t strips = (n + strip - 1) / strip, blocks = (m + rows_together - 1) / rows_together;
  const StridedIndex<2> matrices(a.shape().leading(-2), {a.strides().leading(-2), b.strides().leading(-2)});
  const index_t work = std::min(m, rows_together) * std::min(n, strip) * std::max<index_t>(depth, 1);
  parallel_for(
      matrices.count() * blocks * strips, std::max<index_t>((1 << 19) / work, 1), [&](index_t begin, index_t end) {
        for (index_t task = begin; task < end; ++task) {
          const index_t first = task % strips * strip, row = task / strips % blocks * rows_together;
          const index_t matrix = task / strips / blocks, columns = std::min(strip, n - first);
          const index_t rows = std::min(rows_together, m - row);
          const auto at = matrices(matrix);
          const C* const left = a.data<C>() + at[0] + row * a_row;
          const C* const right = b.data<C>() + at[1] + first * b_column;
          C sums[rows_together * widest_strip];
          for (index_t r = 0; r < rows; ++r)
            for (index_t j = 0; j < columns; ++j) sums[r * columns + j] = bias ? bias[first + j] : C(0);
          for (index_t l = 0; !by_columns && l < depth; ++l) {
            const C* const line = right + l * b_row;
            for (index_t r = 0; r < rows; ++r) {
              const C factor = alpha * left[r * a_row + l];
              C* const sum = sums + r * columns;
              for (index_t j = 0; j < columns; ++j) sum[j] += factor * line[j];
            }
          }
          for (index_t j = 0; by_columns && j < columns; ++j)
            for (index_t r = 0; r < rows; ++r) {
              const C *const x = left + r * a_row, *const y = right + j * b_column;
              sums[r * columns + j] += alpha * sum_of<C>(depth, [=](index_t l) { return x[l] * y[l]; });
            }
          C* const to = out.data<C>() + (matrix * m + row) * n + first;
          for (index_t r = 0; r < rows; ++r) std::copy_n(sums + r * columns, columns, to + r * n);
        }
      });
}

void Kernels::matmul(const Tensor& a, const Tensor& b, const Tensor* bias, double alpha, const Tensor& out) {
  if (out.numel() == 0) return;
  const DType wide = compute_dtype(out.dtype());
  const Tensor result = out.dtype() == wide ? out : Tensor::empty(out.shape(), wide);
  const auto readable = [wide](const Tensor& x, bool as_it_is) {
    return x.dtype() == wide && as_it_is ? x : raw::cast(x, wide);
  };
  const index_t m = a.size(-2), n = b.size(-1), depth = a.size(-1);
  // A transposed copy of b pays for many rows of a, and costs little if b is small.
  const bool by_columns = b.dtype() == wide && b.strides()[-2] == 1 && (n == 1 || b.strides()[-1] != 1) &&
                          m < rows_together && m * n * depth >= 4096;
  const Tensor left = readable(a, depth == 1 || a.strides()[-1] == 1);
  const Tensor right = readable(b, n == 1 || b.strides()[-1] == 1 || by_columns);
  const Tensor shift = bias ? readable(*bias, bias->is_contiguous()) : Tensor();
  const auto multiply = [&]<class C>(Type<C>) {
    multiply_matrices<C>(left, right, by_columns, bias ? shift.data<C>() : nullptr, static_cast<C>(alpha), result);
  };
  if (wide == DType::dual)
    multiply(Type<Dual>());
  else
    wide == DType::f64 ? multiply(Type<double>()) : multiply(Type<float>());
  if (out.dtype() != wide) copy(result, out);
}

}  // namespace whence
