// Normalisation of rows, and its backward. Layer norm: y = (x - mean) rstd w + b with rstd = 1 / sqrt(var + epsilon).
// Root mean square norm: y = x rstd w with rstd = 1 / sqrt(mean(x^2) + epsilon).
#include <algorithm>
#include <vector>

#include "tensor/cpu/block.h"
#include "tensor/cpu/kernels.h"
#include "tensor/cpu/rows.h"
#include "tensor/device/launch.h"

namespace whence {
namespace {

// A parameter in compute type.
template <class T> std::vector<compute_t<T>> parameter(const Tensor& x) {
  std::vector<compute_t<T>> values(static_cast<std::size_t>(x.numel()));
  load_block(x.data<T>(), 1, x.numel(), values.data());
  return values;
}

// Two passes over a row in cache: the mean first, then squares of differences from it, which do not cancel.
template <class T>
void layer_norm_rows(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, const Tensor& y,
    const Tensor& mean, const Tensor& rstd) {
  using C = compute_t<T>;
  const index_t width = x.size(-1), rows = x.numel() / width;
  const std::vector<C> w = parameter<T>(weight), b = parameter<T>(bias);
  const T* in = x.data<T>();
  T* out = y.data<T>();
  C *mean_of = mean.data<C>(), *rstd_of = rstd.data<C>();
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
}

// With n = (x - mean) rstd and g = dy w:  dx = rstd (g - mean(g) - n mean(g n)),  dw = sum dy n,  db = sum dy.
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

// Adds the chunks' partial rows up in order and stores them.
template <class T>
void join_chunks(const std::vector<compute_t<T>>& partial, index_t chunks, index_t width, const Tensor& out) {
  std::vector<wide_t<T>> total(static_cast<std::size_t>(width));
  for (index_t chunk = 0; chunk < chunks; ++chunk) {
    const compute_t<T>* row = partial.data() + chunk * width;
    for (index_t i = 0; i < width; ++i) total[static_cast<std::size_t>(i)] += static_cast<wide_t<T>>(row[i]);
  }
  store_block(total.data(), width, out.data<T>(), 1);
}

// dw and db are sums over all rows: each chunk of rows adds up its own, then the chunks are joined in order.
template <class T>
void layer_norm_backward_rows(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
    const Tensor& dy, const Tensor& dx, const Tensor& dweight, const Tensor& dbias) {
  using C = compute_t<T>;
  const index_t width = x.size(-1), rows = x.numel() / width;
  const index_t grain = std::max<index_t>(rows_per_chunk(width), 16), chunks = (rows + grain - 1) / grain;
  const std::vector<C> w = parameter<T>(weight);
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
      layer_norm_backward_row(values, d, w.data(), mean.data<C>()[row], rstd.data<C>()[row], width, normal.data(),
          result.data(), dw.data() + chunk * width, db.data() + chunk * width);
      store_block(result.data(), width, out + row * width, 1);
    }
  });
  join_chunks<T>(dw, chunks, width, dweight);
  join_chunks<T>(db, chunks, width, dbias);
}

// ---- Root mean square norm. With n = x r and g = dy w:  dx = r (g - n mean(g n)),  dw = sum over rows of dy n

// The sum of f(k) over [0, width), in an order that is a function of width alone. Fewer sums side by side than in
// sum_of, because f reads 16-bit numbers as they are stored.
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

template <class T> struct RmsNormRow {
  using C = compute_t<T>;
  const T *x, *weight;
  T* y;
  C* rstd;
  index_t width;
  double epsilon;
  void operator()(index_t row) const {
    const T* __restrict from = x + row * width;
    const C squares = sum_of_row<C>(width, [=](index_t k) { return C(from[k]) * C(from[k]); });
    const C r = C(1) / math::sqrt(squares / C(static_cast<double>(width)) + C(epsilon));
    T* __restrict to = y + row * width;
    for (index_t k = 0; k < width; ++k) to[k] = static_cast<T>(C(from[k]) * r * C(weight[k]));
    rstd[row] = r;
  }
};

template <class T> struct RmsNormBackwardRow {
  using C = compute_t<T>;
  const T *x, *weight, *dy;
  const C* rstd;
  T* dx;
  index_t width;
  void operator()(index_t row) const {
    const T* __restrict from = x + row * width, * __restrict g = dy + row * width, * __restrict w = weight;
    const C r = rstd[row];
    // mean(g n) n = x r^2 mean(g x)
    const C product = sum_of_row<C>(width, [=](index_t k) { return C(g[k]) * C(w[k]) * C(from[k]); });
    const C share = product * r * r / C(static_cast<double>(width));
    T* __restrict to = dx + row * width;
    for (index_t k = 0; k < width; ++k) to[k] = static_cast<T>(r * (C(g[k]) * C(w[k]) - C(from[k]) * share));
  }
};

// dw over one run of rows and one block of channels.
// How many runs there are depends on the shape alone, and they are added in order.
constexpr index_t channel_block = 64, rows_per_run = 64;
template <class T> struct WeightGradient {
  using C = compute_t<T>;
  const T *x, *dy;
  const C* rstd;
  C* partial;  // [runs, width]
  index_t rows, width, blocks;
  void operator()(index_t part) const {
    const index_t run = part / blocks, first = part % blocks * channel_block;
    const index_t count = width - first < channel_block ? width - first : channel_block;
    const index_t end = (run + 1) * rows_per_run < rows ? (run + 1) * rows_per_run : rows;
    C* __restrict sum = partial + run * width + first;
    for (index_t k = 0; k < count; ++k) sum[k] = C(0);
    for (index_t row = run * rows_per_run; row < end; ++row) {
      const T* __restrict from = x + row * width + first, * __restrict g = dy + row * width + first;
      const C r = rstd[row];
      for (index_t k = 0; k < count; ++k) sum[k] += C(g[k]) * (C(from[k]) * r);
    }
  }
};

}  // namespace

void CpuKernels::layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, const Tensor& y,
    const Tensor& mean, const Tensor& rstd) {
  if (x.numel() == 0) return;
  visit_floating(
      "layer_norm", x.dtype(), [&]<class T>(Type<T>) { layer_norm_rows<T>(x, weight, bias, epsilon, y, mean, rstd); });
}

void CpuKernels::layer_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
    const Tensor& dy, const Tensor& dx, const Tensor& dweight, const Tensor& dbias) {
  if (x.numel() == 0) {
    fill(dweight, 0);
    fill(dbias, 0);
    return;
  }
  visit_floating("layer_norm_backward", x.dtype(),
      [&]<class T>(Type<T>) { layer_norm_backward_rows<T>(x, weight, mean, rstd, dy, dx, dweight, dbias); });
}

void CpuKernels::rms_norm(const Tensor& x, const Tensor& weight, double epsilon, const Tensor& y, const Tensor& rstd) {
  if (x.numel() == 0) return;
  const index_t width = x.size(-1), rows = x.numel() / width;
  visit_floating("rms_norm", x.dtype(), [&]<class T>(Type<T>) {
    launch("rms_norm", x.device(), rows,
        RmsNormRow<T>{x.data<T>(), weight.data<T>(), y.data<T>(), rstd.data<compute_t<T>>(), width, epsilon},
        2 * width);
  });
}

void CpuKernels::rms_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& dy,
    const Tensor& dx, const Tensor& dweight) {
  const index_t width = x.size(-1), rows = x.numel() / width;
  visit_floating("rms_norm_backward", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    if (dx.defined()) {
      launch("rms_norm", x.device(), rows,
          RmsNormBackwardRow<T>{x.data<T>(), weight.data<T>(), dy.data<T>(), rstd.data<C>(), dx.data<T>(), width},
          2 * width);
    }
    if (!dweight.defined()) return;
    const index_t runs = (rows + rows_per_run - 1) / rows_per_run, blocks = (width + channel_block - 1) / channel_block;
    const Tensor partial = Tensor::empty({runs, width}, dtype_of<C>), total = Tensor::empty({1, width}, dtype_of<C>);
    launch("rms_norm", x.device(), runs * blocks,
        WeightGradient<T>{x.data<T>(), dy.data<T>(), rstd.data<C>(), partial.data<C>(), rows, width, blocks}, 8192);
    reduce(Reduction::sum, partial, total);
    copy(total.view(dweight.shape(), contiguous_strides(dweight.shape())), dweight);
  });
}

}  // namespace whence
