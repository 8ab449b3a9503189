// Layer norm over rows: y = (x - mean) rstd w + b with rstd = 1 / sqrt(var + epsilon), and its backward. One thread per row; the gradients
// of w and b by one thread per column and chunk of rows.
#include "cuda/kernels.h"
#include "cuda/sums.h"
#include "tensor/convert.h"
#include "tensor/launch.h"
#include "tensor/math.h"

namespace whence {
namespace {

constexpr index_t chunk_rows = 256;

template <class T>
T* data_or_null(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}

template <class T>
struct NormRow {
  using C = compute_t<T>;
  const T *x, *weight, *bias;  // no weight: 1; no bias: 0
  double epsilon;
  T* y;
  C *mean, *rstd;
  index_t width;
  WHENCE_HD void operator()(index_t row) const {
    using W = sum_t<T>;
    const T* from = x + row * width;
    const W count = W(static_cast<double>(width));
    W total = 0, spread = 0;
    for (index_t j = 0; j < width; ++j) total += convert<W>(C(from[j]));
    const C center = convert<C>(total / count);
    for (index_t j = 0; j < width; ++j) {
      const C distance = C(from[j]) - center;
      spread += convert<W>(distance * distance);
    }
    const C scale = C(1) / math::sqrt(convert<C>(spread / count) + C(epsilon));
    for (index_t j = 0; j < width; ++j) {
      const C gain = weight ? C(weight[j]) : C(1), shift = bias ? C(bias[j]) : C(0);
      y[row * width + j] = convert<T>((C(from[j]) - center) * scale * gain + shift);
    }
    mean[row] = center;
    rstd[row] = scale;
  }
};

// With n = (x - mean) rstd and g = dy w:  dx = rstd (g - mean(g) - n mean(g n))
template <class T>
struct NormBackwardRow {
  using C = compute_t<T>;
  const T *x, *weight, *dy;
  const C *mean, *rstd;
  T* dx;
  index_t width;
  WHENCE_HD C gradient(index_t row, index_t j) const { return C(dy[row * width + j]) * (weight ? C(weight[j]) : C(1)); }
  WHENCE_HD C normal(index_t row, index_t j) const { return (C(x[row * width + j]) - mean[row]) * rstd[row]; }
  WHENCE_HD void operator()(index_t row) const {
    using W = sum_t<T>;
    const W count = W(static_cast<double>(width));
    W total_g = 0, total_gn = 0;
    for (index_t j = 0; j < width; ++j) {
      const C g = gradient(row, j);
      total_g += convert<W>(g);
      total_gn += convert<W>(g * normal(row, j));
    }
    const C mean_g = convert<C>(total_g / count), mean_gn = convert<C>(total_gn / count);
    for (index_t j = 0; j < width; ++j) {
      dx[row * width + j] = convert<T>(rstd[row] * (gradient(row, j) - mean_g - normal(row, j) * mean_gn));
    }
  }
};

// dw = sum dy n,  db = sum dy, over one chunk of rows.
template <class T>
struct NormColumn {
  using C = compute_t<T>;
  const T *x, *dy;
  const C *mean, *rstd;
  sum_t<T>*dweight, *dbias;  // [chunks, width]
  index_t rows, width;
  WHENCE_HD void operator()(index_t i) const {
    const index_t column = i % width, begin = i / width * chunk_rows, end = begin + chunk_rows < rows ? begin + chunk_rows : rows;
    sum_t<T> dw = 0, db = 0;
    for (index_t row = begin; row < end; ++row) {
      const C g = dy[row * width + column];
      dw += convert<sum_t<T>>(g * ((C(x[row * width + column]) - mean[row]) * rstd[row]));
      db += convert<sum_t<T>>(g);
    }
    dweight[i] = dw;
    dbias[i] = db;
  }
};

// Statistics are kept in the compute type whatever dtype the caller's tensor has.
Tensor statistics(const Tensor& given, DType dtype) {
  return given.dtype() == dtype ? given : Tensor::empty(given.shape(), dtype, given.device());
}

void join_chunks(CudaKernels& kernels, const Tensor& partial, const Tensor& out) {
  if (!out.defined()) return;
  const Tensor total = Tensor::empty({1, partial.size(1)}, partial.dtype(), partial.device());
  kernels.reduce(Reduction::sum, partial, total);
  kernels.copy(total.view(out.shape(), contiguous_strides(out.shape())), out);
}

}  // namespace

void CudaKernels::layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, const Tensor& y, const Tensor& mean,
                             const Tensor& rstd) {
  if (x.numel() == 0) return;
  const index_t width = x.size(-1), rows = x.numel() / width;
  visit_floating("layer_norm", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const Tensor means = statistics(mean, dtype_of<C>), rstds = statistics(rstd, dtype_of<C>);
    const NormRow<T> body{x.data<T>(), data_or_null<T>(weight), data_or_null<T>(bias), epsilon,
                          y.data<T>(), means.data<C>(),         rstds.data<C>(),       width};
    launch("layer_norm", x.device(), rows, body, width);
    if (means.dtype() != mean.dtype()) copy(means, mean);
    if (rstds.dtype() != rstd.dtype()) copy(rstds, rstd);
  });
}

void CudaKernels::layer_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd, const Tensor& dy,
                                      const Tensor& dx, const Tensor& dweight, const Tensor& dbias) {
  if (x.numel() == 0) {
    if (dweight.defined()) fill(dweight, 0);
    if (dbias.defined()) fill(dbias, 0);
    return;
  }
  const index_t width = x.size(-1), rows = x.numel() / width, chunks = (rows + chunk_rows - 1) / chunk_rows;
  visit_floating("layer_norm_backward", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const Tensor means = statistics(mean, dtype_of<C>), rstds = statistics(rstd, dtype_of<C>);
    if (means.dtype() != mean.dtype()) copy(mean, means);
    if (rstds.dtype() != rstd.dtype()) copy(rstd, rstds);
    const NormBackwardRow<T> row{x.data<T>(), data_or_null<T>(weight), dy.data<T>(), means.data<C>(), rstds.data<C>(), dx.data<T>(), width};
    launch("layer_norm_backward", x.device(), rows, row, width);
    if (!dweight.defined() && !dbias.defined()) return;
    const Tensor dw = Tensor::empty({chunks, width}, dtype_of<sum_t<T>>, x.device()),
                 db = Tensor::empty(dw.shape(), dw.dtype(), x.device());
    const NormColumn<T> column{x.data<T>(), dy.data<T>(), means.data<C>(), rstds.data<C>(), dw.data<sum_t<T>>(), db.data<sum_t<T>>(),
                               rows,        width};
    launch("layer_norm_backward", x.device(), chunks * width, column, chunk_rows);
    join_chunks(*this, dw, dweight);
    join_chunks(*this, db, dbias);
  });
}

}  // namespace whence
