// Products of few rows. A matrix is read once, so its bytes are all the time: cuBLAS's kernels, made for tiles of rows, take
// two to three times as long, and matrices side by side are copied for them.
#include "cuda/kernels/few_rows.h"

#include "cuda/vocabulary/launch_kernel.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/pointwise.h"

namespace whence::gpu {
namespace {

constexpr std::size_t most_matrices = 3;

// A matrix by its columns, which are those of the result up to `end`.
template <class T> struct Columns {
  Global<const T> at, bias;  // bias: or null
  index_t column;            // numbers from one to the next
  index_t end;
};

// `of_column` warps have a column, one or all of a block: a long one is read by more. Per number of a matrix: 2 operations a row.
template <class T, int rows, int of_column> struct FewRows {
  using C = compute_t<T>;
  static constexpr const char* name = "product of few rows";
  static constexpr int threads = 128, warps = threads / Thread::warp_size;
  static constexpr int pack = pack_size<T>, ahead = rows > 1 ? 2 : 4;  // packs of a column that a thread has on their way
  static constexpr index_t step = of_column * Thread::warp_size * pack;  // numbers that all of a column's threads read
  static constexpr std::size_t shared_bytes = of_column > 1 ? shared_bytes_for<C>(warps * rows) : 0;
  Global<const T> a;
  Columns<T> b[most_matrices];
  Global<T> before, out;  // before: or null
  index_t count, columns, depth, a_row, out_row;
  C alpha;

  WHENCE_HD void operator()(Thread& t) const {
    const index_t n = of_column > 1 ? t.block() : t.block() * warps + t.warp();
    if (n >= columns) return;
    Columns<T> of = b[0];
    index_t begin = 0;
    for (std::size_t k = 1; k < most_matrices; ++k)
      if (n >= b[k - 1].end) of = b[k], begin = b[k - 1].end;
    const Global<const T> column = of.at + (n - begin) * of.column;
    Number<C> sums[rows];
    for (Number<C>& sum : sums) sum = Number<C>(C(0));
    for (index_t first = (of_column > 1 ? t.index() : t.lane()) * pack; first < depth; first += ahead * step)
      add(first, column, sums);
    for (int row = 0; row < rows; ++row)
      for (int mask = Thread::warp_size / 2; mask > 0; mask /= 2) sums[row] += t.shuffle_xor(sums[row], mask);
    if constexpr (of_column > 1) {
      const Shared<C> of_warps = t.shared<C>(warps * rows);
      for (int row = 0; row < rows; ++row)
        if (t.lane() == row) store(of_warps, row * warps + t.warp(), sums[row]);
      t.sync();
      if (t.warp() > 0) return;
      for (int row = 0; row < rows; ++row) {
        sums[row] = load<C>(of_warps, row * warps);
        for (int warp = 1; warp < warps; ++warp) sums[row] += load<C>(of_warps, row * warps + warp);
      }
    }
    for (int row = 0; row < rows; ++row)
      if (row < count && t.lane() == row) put(row, n, sums[row] * Number<C>(alpha), of.bias, n - begin);
  }

 private:
  // All is read before any of it is used, so that memory is waited for once.
  WHENCE_HD void add(index_t first, Global<const T> column, Number<C> (&sums)[rows]) const {
    Pack<T, pack> of_column_at[ahead], of_rows[rows][ahead];
    for (int q = 0; q < ahead; ++q) {
      const index_t at = first + q * step;
      if (at >= depth) continue;
      of_column_at[q] = load_pack<pack>(column, at);
      for (int row = 0; row < rows; ++row)
        if (row < count) of_rows[row][q] = load_pack<pack>(a, row * a_row + at);
    }
    for (int q = 0; q < ahead; ++q) {
      if (first + q * step >= depth) continue;
      for (int row = 0; row < rows; ++row)
        for (int k = 0; row < count && k < pack; ++k)
          sums[row] += from_stored<C>(of_rows[row][q].of[k]) * from_stored<C>(of_column_at[q].of[k]);
    }
  }
  WHENCE_HD void put(int row, index_t n, Number<C> sum, Global<const T> bias, index_t of_bias) const {
    if (bias) sum += load<C>(bias, of_bias);
    const index_t at = row * out_row + n;
    if (before) store(before, at, sum), sum = functions::Gelu::value(sum, {});
    store(out, at, sum);
  }
};

template <class T> bool rows_in_packs(const Tensor& x, int along) {
  const index_t step = x.strides()[along], of = x.strides()[1 - along];
  return (step == 1 || x.size(along) == 1) && (of % pack_size<T> == 0 || x.size(1 - along) == 1) &&
         begins_with_pack(x, pack_size<T>);
}

template <class T, int rows, int of_column>
void launch(const Tensor& a, std::span<const Tensor> b, std::span<const Tensor> bias, double alpha,
    const Tensor* before, const Tensor& out) {
  using Body = FewRows<T, rows, of_column>;
  Body body{};
  body.a = global<const T>(a), body.out = global<T>(out);
  if (before) body.before = global<T>(*before);
  body.count = out.size(0), body.columns = out.size(1), body.depth = a.size(1);
  body.a_row = a.strides()[0], body.out_row = out.strides()[0], body.alpha = static_cast<compute_t<T>>(alpha);
  for (std::size_t k = 0; k < most_matrices; ++k) {
    const Tensor& of = b[std::min(k, b.size() - 1)];
    body.b[k].at = global<const T>(of), body.b[k].column = of.strides()[1];
    if (k < bias.size()) body.b[k].bias = global<const T>(bias[k]);
    body.b[k].end = k == 0 ? of.size(1) : body.b[k - 1].end + (k < b.size() ? of.size(1) : 0);
  }
  launch_kernel(body, {.blocks = of_column > 1 ? body.columns : blocks_for(body.columns, Body::warps),
                          .shared_bytes = Body::shared_bytes});
}

template <class T>
bool multiply(const Tensor& a, std::span<const Tensor> b, std::span<const Tensor> bias, double alpha,
    const Tensor* before, const Tensor& out) {
  bool fits = a.size(1) > 0 && a.size(1) % pack_size<T> == 0 && rows_in_packs<T>(a, 1) && out.strides()[1] == 1 &&
              (!before || before->strides() == out.strides());
  for (const Tensor& each : b) fits = fits && rows_in_packs<T>(each, 0);
  for (const Tensor& each : bias) fits = fits && each.is_contiguous();
  if (!fits) return false;
  constexpr int few = most_few_rows, all = FewRows<T, 1, 1>::warps;
  const bool long_columns = a.size(1) > FewRows<T, 1, 1>::step * FewRows<T, 1, 1>::ahead;
  if (out.size(0) == 1)
    long_columns ? launch<T, 1, all>(a, b, bias, alpha, before, out) : launch<T, 1, 1>(a, b, bias, alpha, before, out);
  else
    long_columns ? launch<T, few, all>(a, b, bias, alpha, before, out)
                 : launch<T, few, 1>(a, b, bias, alpha, before, out);
  return true;
}

}  // namespace

bool multiply_few_rows(const Tensor& a, std::span<const Tensor> b, std::span<const Tensor> bias, double alpha,
    const Tensor* before, const Tensor& out) {
  if (out.rank() != 2 || out.numel() == 0 || out.size(0) > most_few_rows || b.size() > most_matrices) return false;
  switch (out.dtype()) {
    case DType::f16: return multiply<Float16>(a, b, bias, alpha, before, out);
    case DType::bf16: return multiply<BFloat16>(a, b, bias, alpha, before, out);
    case DType::f32: return multiply<float>(a, b, bias, alpha, before, out);
    default: return false;
  }
}

}  // namespace whence::gpu
