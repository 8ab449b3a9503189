// Normalisation of rows, and its backward. Layer norm: y = (x - mean) rstd w + b with rstd = 1 / sqrt(var + epsilon).
// Root mean square norm: y = x rstd w with rstd = 1 / sqrt(mean(x^2) + epsilon).
#include <algorithm>
#include <vector>

#include "tensor/cpu/block.h"
#include "tensor/cpu/kernels.h"
#include "tensor/cpu/rows.h"
#include "tensor/parallel.h"

namespace whence {
namespace {

// A parameter in compute type.
template <class T> std::vector<compute_t<T>> parameter(const Tensor& x) {
  std::vector<compute_t<T>> values(static_cast<std::size_t>(x.numel()));
  load_block(x.data<T>(), 1, x.numel(), values.data());
  return values;
}

// The sum of f(k) over [0, width) for the root mean square norm, in an order that is a function of width alone,
// and not that of sum_of.
template <class C, class F> C sum_of_row(index_t width, const F& f) {
  constexpr index_t lanes = 16;
  C sums[lanes] = {}, total = C(0);
  index_t k = 0;
  for (; k + lanes <= width; k += lanes)
    for (index_t lane = 0; lane < lanes; ++lane) sums[lane] += f(k + lane);
  for (; k < width; ++k) total += f(k);
  for (index_t lane = 0; lane < lanes; ++lane) total += sums[lane];
  return total;
}

// Two passes over a row in cache: the mean first, then squares of differences from it, which do not cancel. Root mean
// square norm: as if the mean were 0.
template <class T>
void norm_rows(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, const Tensor& y,
    const Tensor& mean, const Tensor& rstd) {
  using C = compute_t<T>;
  const bool centered = mean.defined();
  const index_t width = x.size(-1), rows = x.numel() / width;
  const C count = C(static_cast<double>(width));
  const std::vector<C> w = parameter<T>(weight), b = centered ? parameter<T>(bias) : std::vector<C>();
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
      if (centered) {
        const C center = sum_of<C>(width, [values](index_t i) { return values[i]; }) / count;
        const C spread = sum_of<C>(width, [values, center](index_t i) {
          const C d = values[i] - center;
          return d * d;
        });
        const C scale = C(1) / math::sqrt(spread / count + C(epsilon));
        for (index_t i = 0; i < width; ++i) to[i] = (values[i] - center) * scale * gain[i] + shift[i];
        mean_of[row] = center, rstd_of[row] = scale;  // what backward starts from
      } else {
        const C squares = sum_of_row<C>(width, [values](index_t i) { return values[i] * values[i]; });
        const C scale = C(1) / math::sqrt(squares / count + C(epsilon));
        for (index_t i = 0; i < width; ++i) to[i] = values[i] * scale * gain[i];
        rstd_of[row] = scale;
      }
      store_block(to, width, out + row * width, 1);
    }
  });
}

// With n = (x - mean) rstd and g = dy w:  dx = rstd (g - mean(g) - n mean(g n)),  dw += dy n,  db += dy.
template <class C>
void layer_norm_backward_row(const C* __restrict x, const C* __restrict dy, const C* __restrict w, C mean, C rstd,
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

// With n = x rstd and g = dy w:  dx = rstd (g - n mean(g n)),  dw += dy n.  mean(g n) n = x rstd^2 mean(g x)
template <class C>
void rms_norm_backward_row(const C* __restrict x, const C* __restrict dy, const C* __restrict w, C rstd, index_t width,
    C* __restrict dx, C* __restrict dw) {
  const C product = sum_of_row<C>(width, [=](index_t i) { return dy[i] * w[i] * x[i]; });
  const C share = product * rstd * rstd / C(static_cast<double>(width));
  for (index_t i = 0; i < width; ++i) {
    dx[i] = rstd * (dy[i] * w[i] - x[i] * share);
    dw[i] += dy[i] * (x[i] * rstd);
  }
}

// Adds the chunks' partial rows up in order and stores them.
template <class T> void join_chunks(const compute_t<T>* partial, index_t chunks, index_t width, const Tensor& out) {
  std::vector<wide_t<T>> total(static_cast<std::size_t>(width));
  for (index_t chunk = 0; chunk < chunks; ++chunk) {
    const compute_t<T>* row = partial + chunk * width;
    for (index_t i = 0; i < width; ++i) total[static_cast<std::size_t>(i)] += static_cast<wide_t<T>>(row[i]);
  }
  store_block(total.data(), width, out.data<T>(), 1);
}

// dw and db are sums over all rows: each chunk of rows adds up its own, then the chunks are joined in order.
template <class T>
void norm_backward_rows(Kernels& kernels, const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
    const Tensor& dy, const Tensor& dx, const Tensor& dweight, const Tensor& dbias) {
  using C = compute_t<T>;
  const bool centered = mean.defined();
  const index_t width = x.size(-1), rows = x.numel() / width;
  const index_t grain = centered ? std::max<index_t>(rows_per_chunk(width), 16) : 64;
  const index_t chunks = (rows + grain - 1) / grain;
  const std::vector<C> w = parameter<T>(weight);
  const Tensor dw = Tensor::zeros({chunks, width}, dtype_of<C>);
  std::vector<C> db(static_cast<std::size_t>(centered ? chunks * width : 0));
  const T *in = x.data<T>(), *gradient = dy.data<T>();
  const C *mean_of = centered ? mean.data<C>() : nullptr, *rstd_of = rstd.data<C>();
  C* const dw_of = dw.data<C>();
  T* const out = dx.defined() ? dx.data<T>() : nullptr;
  parallel_for(rows, grain, [&](index_t begin, index_t end) {
    const std::size_t length = static_cast<std::size_t>(width);
    std::vector<C> x_buffer(length), d_buffer(length), normal(length), result(length);
    const index_t sums = begin / grain * width;
    for (index_t row = begin; row < end; ++row) {
      const C* values = row_as(in + row * width, width, x_buffer.data());
      const C* d = row_as(gradient + row * width, width, d_buffer.data());
      if (centered) {
        layer_norm_backward_row(values, d, w.data(), mean_of[row], rstd_of[row], width, normal.data(), result.data(),
            dw_of + sums, db.data() + sums);
      } else {
        rms_norm_backward_row(values, d, w.data(), rstd_of[row], width, result.data(), dw_of + sums);
      }
      if (out) store_block(result.data(), width, out + row * width, 1);
    }
  });
  if (dbias.defined()) join_chunks<T>(db.data(), chunks, width, dbias);
  if (!dweight.defined()) return;
  if (centered) return join_chunks<T>(dw_of, chunks, width, dweight);
  const Tensor total = Tensor::empty({1, width}, dtype_of<C>);
  kernels.reduce(Reduction::sum, dw, total);
  kernels.copy(total.view(dweight.shape(), contiguous_strides(dweight.shape())), dweight);
}

}  // namespace

void CpuKernels::norm(const Tensor& x, const Tensor& added, const Tensor& weight, const Tensor& bias, double epsilon,
    const Tensor& sum, const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  if (x.numel() == 0) return;
  if (added.defined()) binary(functions::Add{}, x, added, sum);
  visit_floating("norm", x.dtype(),
      [&]<class T>(Type<T>) { norm_rows<T>(added.defined() ? sum : x, weight, bias, epsilon, y, mean, rstd); });
}

void CpuKernels::norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
    const Tensor& dsum, const Tensor& dy, const Tensor& dx, const Tensor& dweight, const Tensor& dbias) {
  if (x.numel() == 0) {
    for (const Tensor& of_rows : {dweight, dbias})
      if (of_rows.defined()) fill(of_rows, 0);
    return;
  }
  visit_floating("norm_backward", x.dtype(),
      [&]<class T>(Type<T>) { norm_backward_rows<T>(*this, x, weight, mean, rstd, dy, dx, dweight, dbias); });
  if (dx.defined() && dsum.defined()) binary(functions::Add{}, dx, dsum, dx);
}

}  // namespace whence
