// Layer norm over rows: y = (x - mean) rstd w + b with rstd = 1 / sqrt(var + epsilon), and its backward.
#include <algorithm>
#include <vector>

#include "tensor/cpu/block.h"
#include "tensor/cpu/kernels.h"
#include "tensor/cpu/rows.h"
#include "tensor/parallel.h"

namespace whence {
namespace {

// A parameter in compute type; `otherwise` everywhere when there is none.
template <class T>
std::vector<compute_t<T>> parameter(const Tensor& x, index_t width, double otherwise) {
  std::vector<compute_t<T>> values(static_cast<std::size_t>(width), compute_t<T>(otherwise));
  if (x.defined()) load_block(x.data<T>(), 1, width, values.data());
  return values;
}

// Statistics are kept in the compute type whatever dtype the caller's tensor has.
template <class C>
Tensor statistics_in(const Tensor& kept) {
  if (kept.dtype() == dtype_of<C>) return kept;
  Tensor result = Tensor::empty(kept.shape(), dtype_of<C>);
  cpu_kernels().copy(kept, result);
  return result;
}

// Two passes over a row in cache: the mean first, then squares of differences from it, which do not cancel.
template <class T>
void norm_rows(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, const Tensor& y,
    const Tensor& mean, const Tensor& rstd) {
  using C = compute_t<T>;
  const index_t width = x.size(-1), rows = x.numel() / width;
  const std::vector<C> w = parameter<T>(weight, width, 1), b = parameter<T>(bias, width, 0);
  const Tensor means = mean.dtype() == dtype_of<C> ? mean : Tensor::empty({rows}, dtype_of<C>);
  const Tensor rstds = rstd.dtype() == dtype_of<C> ? rstd : Tensor::empty({rows}, dtype_of<C>);
  const T* in = x.data<T>();
  T* out = y.data<T>();
  C *mean_of = means.data<C>(), *rstd_of = rstds.data<C>();
  parallel_for(rows, rows_per_chunk(width), [&](index_t begin, index_t end) {
    const std::size_t length = static_cast<std::size_t>(width);
    std::vector<C> buffer(length), result(length);
    for (index_t row = begin; row < end; ++row) {
      const C* values = row_as(in + row * width, width, buffer.data());
      const C center = sum_of<C>(width, [values](index_t i) { return values[i]; }) / C(static_cast<double>(width));
      const C spread = sum_of<C>(width, [values, center](index_t i) {
        const C d = values[i] - center;
        return d * d;
      });
      const C scale = C(1) / math::sqrt(spread / C(static_cast<double>(width)) + C(epsilon));
      C* __restrict to = result.data();
      const C* __restrict gain = w.data(), * __restrict shift = b.data();
      for (index_t i = 0; i < width; ++i) to[i] = (values[i] - center) * scale * gain[i] + shift[i];
      store_block(to, width, out + row * width, 1);
      mean_of[row] = center, rstd_of[row] = scale;  // what backward starts from
    }
  });
  if (means.identity() != mean.identity()) cpu_kernels().copy(means, mean);
  if (rstds.identity() != rstd.identity()) cpu_kernels().copy(rstds, rstd);
}

// With n = (x - mean) rstd and g = dy w:  dx = rstd (g - mean(g) - n mean(g n)),  dw = sum dy n,  db = sum dy.
template <class C>
void norm_backward_row(const C* __restrict x, const C* __restrict dy, const C* __restrict w, C mean, C rstd,
    index_t width, C* __restrict normal, C* __restrict dx, C* __restrict dw, C* __restrict db) {
  for (index_t i = 0; i < width; ++i) normal[i] = (x[i] - mean) * rstd;
  const C count = C(static_cast<double>(width));
  const C mean_g = sum_of<C>(width, [=](index_t i) { return dy[i] * w[i]; }) / count;
  const C mean_gn = sum_of<C>(width, [=](index_t i) { return dy[i] * w[i] * normal[i]; }) / count;
  for (index_t i = 0; i < width; ++i) {
    dx[i] = rstd * (dy[i] * w[i] - mean_g - normal[i] * mean_gn);
    dw[i] += dy[i] * normal[i];
    db[i] += dy[i];
  }
}

// Adds the chunks' partial rows up in order and stores them.
template <class T>
void join_chunks(const std::vector<compute_t<T>>& partial, index_t chunks, index_t width, const Tensor& out) {
  if (!out.defined()) return;
  std::vector<wide_t<T>> total(static_cast<std::size_t>(width));
  for (index_t chunk = 0; chunk < chunks; ++chunk) {
    const compute_t<T>* row = partial.data() + chunk * width;
    for (index_t i = 0; i < width; ++i) total[static_cast<std::size_t>(i)] += static_cast<wide_t<T>>(row[i]);
  }
  store_block(total.data(), width, out.data<T>(), 1);
}

// dw and db are sums over all rows: each chunk of rows adds up its own, then the chunks are joined in order.
template <class T>
void norm_backward_rows(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd, const Tensor& dy,
    const Tensor& dx, const Tensor& dweight, const Tensor& dbias) {
  using C = compute_t<T>;
  const index_t width = x.size(-1), rows = x.numel() / width;
  const index_t grain = std::max<index_t>(rows_per_chunk(width), 16), chunks = (rows + grain - 1) / grain;
  const std::vector<C> w = parameter<T>(weight, width, 1);
  const Tensor means = statistics_in<C>(mean), rstds = statistics_in<C>(rstd);
  const std::size_t partial_size = static_cast<std::size_t>(chunks * width);
  std::vector<C> dw(partial_size), db(partial_size);
  const T *in = x.data<T>(), *gradient = dy.data<T>();
  T* out = dx.data<T>();
  parallel_for(rows, grain, [&](index_t begin, index_t end) {
    const std::size_t length = static_cast<std::size_t>(width);
    std::vector<C> x_buffer(length), d_buffer(length), normal(length), result(length);
    const index_t chunk = begin / grain;
    for (index_t row = begin; row < end; ++row) {
      const C* values = row_as(in + row * width, width, x_buffer.data());
      const C* d = row_as(gradient + row * width, width, d_buffer.data());
      norm_backward_row(values, d, w.data(), means.data<C>()[row], rstds.data<C>()[row], width, normal.data(),
          result.data(), dw.data() + chunk * width, db.data() + chunk * width);
      store_block(result.data(), width, out + row * width, 1);
    }
  });
  join_chunks<T>(dw, chunks, width, dweight);
  join_chunks<T>(db, chunks, width, dbias);
}

}  // namespace

void CpuKernels::layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, const Tensor& y,
    const Tensor& mean, const Tensor& rstd) {
  if (x.numel() == 0) return;
  visit_floating(
      "layer_norm", x.dtype(), [&]<class T>(Type<T>) { norm_rows<T>(x, weight, bias, epsilon, y, mean, rstd); });
}

void CpuKernels::layer_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
    const Tensor& dy, const Tensor& dx, const Tensor& dweight, const Tensor& dbias) {
  if (x.numel() == 0) {
    if (dweight.defined()) fill(dweight, 0);
    if (dbias.defined()) fill(dbias, 0);
    return;
  }
  visit_floating("layer_norm_backward", x.dtype(),
      [&]<class T>(Type<T>) { norm_backward_rows<T>(x, weight, mean, rstd, dy, dx, dweight, dbias); });
}

}  // namespace whence
