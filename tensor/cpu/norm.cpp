// Normalisation of rows, and its backward: y = n w + b, n = (x - mean) rstd.
// Layer norm: rstd = 1 / sqrt(var + epsilon). Root mean square norm: no bias, and the mean counts as 0, so that
// rstd = 1 / sqrt(mean(x^2) + epsilon).
#include <algorithm>
#include <vector>

#include "tensor/cpu/block.h"
#include "tensor/cpu/kernels.h"
#include "tensor/cpu/rows.h"
#include "tensor/parallel.h"

namespace whence {
namespace {

// A parameter in compute type; zeros if it is undefined.
template <class T> std::vector<compute_t<T>> parameter(const Tensor& x, index_t width) {
  std::vector<compute_t<T>> values(static_cast<std::size_t>(width));
  if (x.defined()) load_block(x.data<T>(), 1, width, values.data());
  return values;
}

// Two passes over a row in cache: first the mean, then squares of differences from it, which do not cancel.
template <class T>
void norm_rows(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, const Tensor& y,
    const Tensor& mean, const Tensor& rstd) {
  using C = compute_t<T>;
  const bool centered = mean.defined();
  const index_t width = x.size(-1), rows = x.numel() / width;
  const C count = C(static_cast<double>(width));
  const std::vector<C> w = parameter<T>(weight, width), b = parameter<T>(bias, width);
  const T* in = x.data<T>();
  T* out = y.data<T>();
  C *mean_of = centered ? mean.data<C>() : nullptr, *rstd_of = rstd.data<C>();
  parallel_for(rows, rows_per_chunk(width), [&](index_t begin, index_t end) {
    const std::size_t length = static_cast<std::size_t>(width);
    std::vector<C> buffer(length), result(length);
    for (index_t row = begin; row < end; ++row) {
      const C* values = row_as(in + row * width, width, buffer.data());
      C* __restrict to = result.data();
      const C* __restrict gain = w.data(), * __restrict shift = b.data();
      const C center = centered ? sum_of<C>(width, [values](index_t i) { return values[i]; }) / count : C(0);
      const C spread = sum_of<C>(width, [values, center](index_t i) {
        const C d = values[i] - center;
        return d * d;
      });
      const C scale = C(1) / math::sqrt(spread / count + C(epsilon));
      for (index_t i = 0; i < width; ++i) to[i] = (values[i] - center) * scale * gain[i] + shift[i];
      store_block(to, width, out + row * width, 1);
      if (centered) mean_of[row] = center;  // for backward
      rstd_of[row] = scale;
    }
  });
}

// With n = (x - mean) rstd and g = dy w:  dx = rstd (g - mean(g) - n mean(g n)),  dw += dy n,  db += dy. Without
// centering mean(g) and db are left out.
template <bool centered, class C>
void norm_backward_row(const C* __restrict x, const C* __restrict dy, const C* __restrict w, C mean, C rstd,
    index_t width, C* __restrict dx, C* __restrict dw, C* __restrict db) {
  const C count = C(static_cast<double>(width));
  const C mean_g = centered ? sum_of<C>(width, [=](index_t i) { return dy[i] * w[i]; }) / count : C(0);
  const C mean_gn = sum_of<C>(width, [=](index_t i) { return dy[i] * w[i] * ((x[i] - mean) * rstd); }) / count;
  for (index_t i = 0; i < width; ++i) {
    const C normal = (x[i] - mean) * rstd;
    dx[i] = rstd * (dy[i] * w[i] - mean_g - normal * mean_gn);
    dw[i] += dy[i] * normal;
    if constexpr (centered) db[i] += dy[i];
  }
}

// Adds the partial rows of the chunks in order and stores the sums.
template <class T> void join_chunks(const compute_t<T>* partial, index_t chunks, index_t width, const Tensor& out) {
  if (!out.defined()) return;
  std::vector<double> total(static_cast<std::size_t>(width));
  for (index_t chunk = 0; chunk < chunks; ++chunk) {
    const compute_t<T>* row = partial + chunk * width;
    for (index_t i = 0; i < width; ++i) total[static_cast<std::size_t>(i)] += static_cast<double>(row[i]);
  }
  store_block(total.data(), width, out.data<T>(), 1);
}

// dw and db are sums over all rows: each chunk of rows makes a partial sum, then the chunks are added in order.
template <bool centered, class T>
void norm_backward_rows(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd, const Tensor& dy,
    const Tensor& dx, const Tensor& dweight, const Tensor& dbias) {
  using C = compute_t<T>;
  const index_t width = x.size(-1), rows = x.numel() / width, grain = std::max<index_t>(rows_per_chunk(width), 16);
  const index_t chunks = (rows + grain - 1) / grain;
  const std::vector<C> w = parameter<T>(weight, width);
  const Tensor partial = Tensor::zeros({centered ? 2 : 1, chunks, width}, dtype_of<C>);
  C *const dw = partial.data<C>(), *const db = centered ? dw + chunks * width : nullptr;
  const T *in = x.data<T>(), *gradient = dy.data<T>();
  const C *mean_of = centered ? mean.data<C>() : nullptr, *rstd_of = rstd.data<C>();
  T* const out = dx.defined() ? dx.data<T>() : nullptr;
  parallel_for(rows, grain, [&](index_t begin, index_t end) {
    const std::size_t length = static_cast<std::size_t>(width);
    std::vector<C> x_buffer(length), d_buffer(length), result(length);
    const index_t sums = begin / grain * width;
    for (index_t row = begin; row < end; ++row) {
      norm_backward_row<centered>(row_as(in + row * width, width, x_buffer.data()),
          row_as(gradient + row * width, width, d_buffer.data()), w.data(), centered ? mean_of[row] : C(0),
          rstd_of[row], width, result.data(), dw + sums, centered ? db + sums : nullptr);
      if (out) store_block(result.data(), width, out + row * width, 1);
    }
  });
  join_chunks<T>(dw, chunks, width, dweight);
  join_chunks<T>(db, chunks, width, dbias);
}

}  // namespace

void CpuKernels::norm(const Tensor& x, const Tensor& added, const Tensor& weight, const Tensor& bias, double epsilon,
    const Tensor& sum, const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  if (x.numel() == 0) return;
  if (added.defined()) binary(functions::Add{}, x, added, sum);
  visit_real("norm", x.dtype(),
      [&]<class T>(Type<T>) { norm_rows<T>(added.defined() ? sum : x, weight, bias, epsilon, y, mean, rstd); });
}

void CpuKernels::norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
    const Tensor& dsum, const Tensor& dy, const Tensor& dx, const Tensor& dweight, const Tensor& dbias) {
  if (x.numel() == 0) {
    for (const Tensor& of_rows : {dweight, dbias})
      if (of_rows.defined()) fill(of_rows, 0);
    return;
  }
  visit_real("norm_backward", x.dtype(), [&]<class T>(Type<T>) {
    const auto run = mean.defined() ? norm_backward_rows<true, T> : norm_backward_rows<false, T>;
    run(x, weight, mean, rstd, dy, dx, dweight, dbias);
  });
  if (dx.defined() && dsum.defined()) binary(functions::Add{}, dx, dsum, dx);
}

}  // namespace whence
