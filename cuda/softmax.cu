// Softmax over rows: y_j = e^(x_j - max x) / sum_l e^(x_l - max x), and its backward. One thread per row, three passes.
#include "cuda/kernels.h"
#include "cuda/strided_index.h"
#include "cuda/sums.h"
#include "tensor/convert.h"
#include "tensor/launch.h"
#include "tensor/math.h"

namespace whence {
namespace {

// A row's mask may lie anywhere. Without a mask `first` is null and every entry is kept.
struct MaskRows {
  const bool* first;
  StridedIndex<1> row_start;
  index_t step;
  WHENCE_HD const bool* row(index_t number) const { return first ? first + row_start(number)[0] : nullptr; }
  WHENCE_HD bool keeps(const bool* row, index_t j) const { return !row || row[j * step]; }
};

MaskRows mask_rows(const Tensor& x, const Tensor& mask) {
  Shape rows;
  Strides strides;
  if (!mask.defined()) return {nullptr, {rows, {strides}}, 0};
  for (int axis = 0; axis + 1 < x.rank(); ++axis) rows.push_back(x.shape()[axis]), strides.push_back(mask.strides()[axis]);
  return {mask.data<bool>(), {rows, {strides}}, mask.strides()[-1]};
}

// Masked entries count as e^-inf = 0; a row without any other entry is all 0.
template <class T>
struct SoftmaxRow {
  const T* x;
  MaskRows mask;
  T* y;
  index_t width;
  WHENCE_HD void operator()(index_t row) const {
    using C = compute_t<T>;
    const T* from = x + row * width;
    T* to = y + row * width;
    const bool* where = mask.row(row);
    index_t first = 0;
    while (first < width && !mask.keeps(where, first)) ++first;
    C top = first < width ? C(from[first]) : C(0);
    for (index_t j = first + 1; j < width; ++j) {
      if (mask.keeps(where, j)) top = larger_of(top, C(from[j]));
    }
    sum_t<T> total = 0;
    for (index_t j = first; j < width; ++j) {
      if (mask.keeps(where, j)) total += convert<sum_t<T>>(math::exp(C(from[j]) - top));
    }
    const C scale = C(1) / convert<C>(total);
    for (index_t j = 0; j < width; ++j) to[j] = mask.keeps(where, j) ? convert<T>(math::exp(C(from[j]) - top) * scale) : convert<T>(C(0));
  }
};

// dx = y (dy - sum_l y_l dy_l)
template <class T>
struct SoftmaxBackwardRow {
  const T *y, *dy;
  T* dx;
  index_t width;
  WHENCE_HD void operator()(index_t row) const {
    using C = compute_t<T>;
    const index_t begin = row * width, end = begin + width;
    sum_t<T> total = 0;
    for (index_t j = begin; j < end; ++j) total += convert<sum_t<T>>(C(y[j]) * C(dy[j]));
    const C mean = convert<C>(total);
    for (index_t j = begin; j < end; ++j) dx[j] = convert<T>(C(y[j]) * (C(dy[j]) - mean));
  }
};

}  // namespace

void CudaKernels::softmax(const Tensor& x, const Tensor& mask, const Tensor& y) {
  if (x.numel() == 0) return;
  const index_t width = x.size(-1);
  visit_floating("softmax", x.dtype(), [&]<class T>(Type<T>) {
    launch("softmax", x.device(), x.numel() / width, SoftmaxRow<T>{x.data<T>(), mask_rows(x, mask), y.data<T>(), width}, width);
  });
}

void CudaKernels::softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) {
  if (y.numel() == 0) return;
  const index_t width = y.size(-1);
  visit_floating("softmax_backward", y.dtype(), [&]<class T>(Type<T>) {
    launch("softmax_backward", y.device(), y.numel() / width, SoftmaxBackwardRow<T>{y.data<T>(), dy.data<T>(), dx.data<T>(), width}, width);
  });
}

}  // namespace whence
