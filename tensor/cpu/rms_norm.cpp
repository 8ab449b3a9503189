// Root mean square norm over rows: y = x r w with r = 1 / sqrt(mean(x^2) + epsilon), and its backward.
//   With n = x r and g = dy w:  dx = r (g - n mean(g n)),  dw = sum over rows of dy n
#include "tensor/cpu/kernels.h"
#include "tensor/math.h"
#include "tensor/parallel.h"

namespace whence {
namespace {

constexpr index_t lanes = 16;  // sums run side by side, so that they are vector code and their rounding stays small

// The sum of f(k) over [0, width), in an order that is a function of width alone.
template <class C, class F>
C sum_of_row(index_t width, const F& f) {
  C sums[lanes] = {}, total = C(0);
  index_t k = 0;
  for (; k + lanes <= width; k += lanes) {
    for (index_t lane = 0; lane < lanes; ++lane) sums[lane] += f(k + lane);
  }
  for (; k < width; ++k) total += f(k);
  for (index_t lane = 0; lane < lanes; ++lane) total += sums[lane];
  return total;
}

template <class T>
struct NormForward {
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

template <class T>
struct NormBackward {
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

// dw over one run of rows and one block of channels. How many runs there are depends on the shape alone, and they are
// added in order.
constexpr index_t channel_block = 64, rows_per_run = 64;
template <class T>
struct WeightGradient {
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

// body(i) for all i in [0, count), each of which touches about `cost` numbers.
template <class Body>
void for_each(index_t count, index_t cost, const Body& body) {
  parallel_for(count, rows_per_chunk(cost), [&](index_t begin, index_t end) {
    for (index_t i = begin; i < end; ++i) body(i);
  });
}

}  // namespace

void CpuKernels::rms_norm(const Tensor& x, const Tensor& weight, double epsilon, const Tensor& y, const Tensor& rstd) {
  if (x.numel() == 0) return;
  const index_t width = x.size(-1), rows = x.numel() / width;
  visit_floating("rms_norm", x.dtype(), [&]<class T>(Type<T>) {
    for_each(rows, 2 * width,
        NormForward<T>{x.data<T>(), weight.data<T>(), y.data<T>(), rstd.data<compute_t<T>>(), width, epsilon});
  });
}

void CpuKernels::rms_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& dy,
    const Tensor& dx, const Tensor& dweight) {
  const index_t width = x.size(-1), rows = x.numel() / width;
  visit_floating("rms_norm_backward", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    if (dx.defined()) {
      for_each(rows, 2 * width,
          NormBackward<T>{x.data<T>(), weight.data<T>(), dy.data<T>(), rstd.data<C>(), dx.data<T>(), width});
    }
    if (!dweight.defined()) return;
    const index_t runs = (rows + rows_per_run - 1) / rows_per_run, blocks = (width + channel_block - 1) / channel_block;
    const Tensor partial = Tensor::empty({runs, width}, dtype_of<C>), total = Tensor::empty({1, width}, dtype_of<C>);
    for_each(runs * blocks, 8192,
        WeightGradient<T>{x.data<T>(), dy.data<T>(), rstd.data<C>(), partial.data<C>(), rows, width, blocks});
    reduce(Reduction::sum, partial, total);
    copy(total.view(dweight.shape(), contiguous_strides(dweight.shape())), dweight);
  });
}

}  // namespace whence
