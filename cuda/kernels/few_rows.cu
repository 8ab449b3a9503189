// Products of few rows. A matrix is read once, and its bytes take most of the time. cuBLAS's kernels, made for tiles of
// rows, take longer, and need a copy to join adjacent matrices.
#include "cuda/kernels/few_rows.h"

#include "cuda/vocabulary/launch_kernel.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/pointwise.h"

namespace whence::gpu {
namespace {

constexpr std::size_t most_matrices = 3;

// A matrix by its columns, which are the result's columns up to `end`.
template <class T> struct Columns {
  Global<const T> at, bias;  // bias: or null
  index_t column;            // stride of columns
  index_t end;
};

// A warp has a column. Per number of a matrix: 2 operations per row.
template <class T, int rows> struct FewRows {
  using C = compute_t<T>;
  static constexpr const char* name = "product of few rows";
  static constexpr int threads = 128, warps = threads / Thread::warp_size;
  static constexpr int pack = pack_size<T>, ahead = 4;  // packs of a column that are loaded at once
  Global<const T> a;
  Columns<T> b[most_matrices];
  Global<T> before, out;  // before: or null
  index_t count, columns, depth, a_row, out_row;
  C alpha;

  WHENCE_HD void operator()(Thread& t) const {
    const index_t n = t.block() * warps + t.warp();
    if (n >= columns) return;
    Columns<T> of = b[0];
    index_t begin = 0;
    for (std::size_t k = 1; k < most_matrices; ++k)
      if (n >= b[k - 1].end) of = b[k], begin = b[k - 1].end;
    const Global<const T> column = of.at + (n - begin) * of.column;
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
      if (row < count && t.lane() == row) put(row, n, sums[row] * Number<C>(alpha), of.bias, n - begin);
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

template <class T, int rows>
void launch(const Tensor& a, std::span<const Tensor> b, std::span<const Tensor> bias, double alpha,
    const Tensor* before, const Tensor& out) {
  using Body = FewRows<T, rows>;
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
  launch_kernel(body, {.blocks = blocks_for(body.columns, Body::warps)});
}

template <class T>
bool multiply(const Tensor& a, std::span<const Tensor> b, std::span<const Tensor> bias, double alpha,
    const Tensor* before, const Tensor& out) {
  bool fits = a.size(1) > 0 && a.size(1) % pack_size<T> == 0 && rows_in_packs<T>(a, 1) && out.strides()[1] == 1 &&
              (!before || before->strides() == out.strides());
  for (const Tensor& each : b) fits = fits && rows_in_packs<T>(each, 0);
  for (const Tensor& each : bias) fits = fits && each.is_contiguous();
  if (fits)
    out.size(0) == 1 ? launch<T, 1>(a, b, bias, alpha, before, out)
                     : launch<T, int(most_few_rows)>(a, b, bias, alpha, before, out);
  return fits;
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
