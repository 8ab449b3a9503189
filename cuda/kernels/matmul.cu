// Matrix products: cuBLAS for 16 to 64 bits, cuBLASLt if it can fuse what follows, and a kernel for few rows.
#include <algorithm>
#include <optional>

#include "cuda/kernels/kernels.h"
#include "cuda/library/blas.h"
#include "cuda/vocabulary/launch_kernel.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/device/product_layout.h"
#include "tensor/divisor.h"
#include "tensor/pointwise.h"
#include "tensor/raw.h"
#include "tensor/shape.h"

namespace whence {
namespace gpu {
namespace {

// ---- Products of few rows, such as one decoded token, with matrices whose columns are contiguous. A matrix is read
// once, and its bytes take most of the time. The library's kernels are made for tiles of rows, and need a copy to join
// adjacent matrices: joining q, k and v of GPT-2's 85M moves 85 MB, 20 us at 4.3 TB/s, 5 % of a decoded token's 417 us
// (cuda/README.md).

constexpr index_t most_few_rows = 4;
constexpr std::size_t most_matrices = 3;

// A matrix by its columns, and its result [b h t d], a row of heads for each row of a.
template <class T> struct Columns {
  Global<const T> at, bias;  // bias: or null
  Global<T> out;
  index_t column;                // stride of columns
  index_t end;                   // of its columns among those of all matrices
  index_t out_row, head, token;  // strides of the result; token: 0 if its rows begin at the first token
};

// A warp has a column. Per number of a matrix: 2 operations per row.
template <class T, int rows> struct FewRows {
  using C = compute_t<T>;
  static constexpr const char* name = "product of few rows";
  static constexpr int threads = 128, warps = threads / Thread::warp_size;
  static constexpr int pack = pack_size<T>, ahead = 4;  // packs of a column that are loaded at once
  Global<const T> a;
  Columns<T> b[most_matrices];
  Global<T> before;             // or null
  Global<const index_t> token;  // the first token of the results, or null: 0
  index_t count, columns, depth, a_row;
  Divisor head_dim;
  C alpha;

  WHENCE_HD void operator()(Thread& t) const {
    const index_t n = t.block() * warps + t.warp();
    if (n >= columns) return;
    int which = 0;
    while (n >= b[which].end) ++which;
    const Columns<T>& of = b[which];
    const index_t own = which == 0 ? n : n - b[which - 1].end;
    const Global<const T> column = of.at + own * of.column;
    Number<C> sums[rows];
    for (Number<C>& sum : sums) sum = Number<C>(C(0));
    constexpr index_t step = Thread::warp_size * pack;
    for (index_t first = t.lane() * pack; first < depth; first += ahead * step) {
      Pack<T, pack> held[ahead];
      for (int q = 0; q < ahead; ++q)
        if (first + q * step < depth) held[q] = load_pack<pack>(column, first + q * step);
      for (int q = 0; q < ahead; ++q)
        if (first + q * step < depth) add(first + q * step, held[q], sums);
    }
    for (int row = 0; row < rows; ++row) {
      for (int mask = Thread::warp_size / 2; mask > 0; mask /= 2) sums[row] += t.shuffle_xor(sums[row], mask);
      if (row < count && t.lane() == row) put(of, row, own, sums[row] * Number<C>(alpha));
    }
  }

 private:
  WHENCE_HD void add(index_t at, const Pack<T, pack>& of_column, Number<C> (&sums)[rows]) const {
    for (int row = 0; row < rows; ++row) {
      if (row >= count) return;
      const auto of_row = load_pack<pack>(a, row * a_row + at);
      for (int k = 0; k < pack; ++k) sums[row] += from_stored<C>(of_row.of[k]) * from_stored<C>(of_column.of[k]);
    }
  }
  WHENCE_HD void put(const Columns<T>& of, int row, index_t n, Number<C> sum) const {
    if (of.bias) sum += load<C>(of.bias, n);
    const auto [nth, in_head] = head_dim(n);
    const index_t first = token ? index_t(token[0]) : 0,
                  at = first * of.token + row * of.out_row + nth * of.head + in_head;
    if (before) store(before, at, sum), sum = functions::Gelu::value(sum, {});
    store(of.out, at, sum);
  }
};

template <class T> bool rows_in_packs(const Tensor& x, int along) {
  const index_t step = x.strides()[along], of = x.strides()[1 - along];
  return (step == 1 || x.size(along) == 1) && (of % pack_size<T> == 0 || x.size(1 - along) == 1) &&
         begins_with_pack(x, pack_size<T>);
}

// Returns the stride of the rows [b t] of a result, or nothing if it is not one number.
std::optional<index_t> step_of_rows(const Tensor& out, index_t tokens) {
  return even_step({out.size(0), tokens}, {out.strides()[0], out.strides()[2]});
}

template <class T, int rows>
void launch_few_rows(const Tensor& a, std::span<const Tensor> b, std::span<const Tensor> bias, double alpha,
    const Tensor* before, std::span<const Tensor> out, const Tensor& row) {
  using Body = FewRows<T, rows>;
  Body body{};
  body.a = global<const T>(a), body.token = global<const index_t>(row);
  if (before) body.before = global<T>(*before);
  body.count = a.size(0), body.depth = a.size(1), body.a_row = a.strides()[0];
  body.alpha = static_cast<compute_t<T>>(alpha);
  const index_t tokens = a.size(0) / out[0].size(0);
  for (std::size_t k = 0; k < most_matrices; ++k) {
    const std::size_t last = std::min(k, b.size() - 1);
    if (k == last) body.columns += b[k].size(1);
    const Strides& to = out[last].strides();
    body.b[k] = {.at = global<const T>(b[last]),
        .bias = global<const T>(last < bias.size() ? bias[last] : Tensor()),
        .out = global<T>(out[last]),
        .column = b[last].strides()[1],
        .end = body.columns,
        .out_row = *step_of_rows(out[last], tokens),
        .head = to[1],
        .token = out[last].size(2) > tokens ? to[2] : 0};
  }
  body.head_dim = {out[0].size(3), body.columns};
  launch_kernel(body, {.blocks = blocks_for(body.columns, Body::warps)});
}

// out [b h t d] = alpha a [b t, k] b [k, h d] (+ bias [h d]) for each matrix b, as Kernels::matmul_beside says. before:
// null, or out is gelu of these sums, which go to `before`. Returns false, with nothing done, for more rows, for dtypes
// other than f16, bf16 and f32, and if rows of a or columns of b do not begin at 16 bytes.
bool multiply_few_rows(const Tensor& a, std::span<const Tensor> b, std::span<const Tensor> bias, double alpha,
    const Tensor* before, std::span<const Tensor> out, const Tensor& row) {
  if (a.numel() == 0 || a.size(0) > most_few_rows || b.size() > most_matrices) return false;
  return visit_real("matmul", a.dtype(), [&]<class T>(Type<T>) {
    if constexpr (std::is_same_v<T, double>) {
      return false;
    } else {
      bool fits = a.size(1) % pack_size<T> == 0 && rows_in_packs<T>(a, 1);
      for (const Tensor& each : b) fits = fits && rows_in_packs<T>(each, 0);
      for (const Tensor& each : bias) fits = fits && each.is_contiguous();
      for (const Tensor& each : out)
        fits = fits && each.numel() > 0 && each.strides()[3] == 1 && step_of_rows(each, a.size(0) / each.size(0));
      if (fits)
        a.size(0) == 1 ? launch_few_rows<T, 1>(a, b, bias, alpha, before, out, row)
                       : launch_few_rows<T, int(most_few_rows)>(a, b, bias, alpha, before, out, row);
      return fits;
    }
  });
}

}  // namespace
}  // namespace gpu

namespace {

// ---- Products by the library.

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
  if (a.rank() != 2 || b.rank() != 2 || (before && before->strides() != out.strides())) return false;
  const Tensor heads = out.view({out.size(0), 1, 1, out.size(1)}, {out.strides()[0], 0, 0, out.strides()[1]});
  return gpu::multiply_few_rows(a, {&b, 1}, {bias, bias ? 1u : 0u}, alpha, before, {&heads, 1}, {});
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

bool CudaKernels::matmul_beside(const Tensor& a, std::span<const Tensor> b, std::span<const Tensor> bias,
    std::span<const Tensor> out, const Tensor& row) {
  return gpu::multiply_few_rows(a, b, bias, 1, nullptr, out, row);
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
