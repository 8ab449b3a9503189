// Unary and binary functions: runs of any stride and dtype, cut into blocks for the loops of pointwise_*.cpp.
#include <algorithm>

#include "tensor/cpu/block.h"
#include "tensor/cpu/kernels.h"
#include "tensor/cpu/pointwise.h"
#include "tensor/error.h"
#include "tensor/strided_loop.h"

namespace whence {
namespace {

// Calls f(begin, n) for blocks of a run.
template <class F> void for_blocks(index_t count, const F& f) {
  for (index_t begin = 0; begin < count; begin += block_length) f(begin, std::min(block_length, count - begin));
}

// y = f(x). A contiguous run of a compute type goes straight to the loop. Other runs pass through blocks on the stack.
template <class T>
void run_unary(typename PointwiseLoops<compute_t<T>>::Value loop, UnaryAttributes p, const Tensor& x, const Tensor& y) {
  using C = compute_t<T>;
  const T* in = x.data<T>();
  T* out = y.data<T>();
  const StridedLoop<2> runs(y.shape(), {x.strides(), y.strides()});
  const index_t stride = runs.inner_stride(0);
  runs.parallel_run(cpu_grain, [&](const std::array<index_t, 2>& at, index_t count) {
    if constexpr (std::is_same_v<T, C>) {
      if (stride == 1 || count == 1) return loop(p, in + at[0], out + at[1], count);
    }
    for_blocks(count, [&](index_t begin, index_t n) {
      C from[block_length] = {}, to[block_length];
      load_block(in + at[0] + begin * stride, stride, n, from);
      loop(p, from, to, n);
      store_block(to, n, out + at[1] + begin, 1);
    });
  });
}

// dx = dy f'(saved), the same way.
template <class T>
void run_derivative(typename PointwiseLoops<compute_t<T>>::Derivative loop, UnaryAttributes p, const Tensor& saved,
    const Tensor& dy, const Tensor& dx) {
  using C = compute_t<T>;
  const T *value = saved.data<T>(), *in = dy.data<T>();
  T* out = dx.data<T>();
  const StridedLoop<3> runs(dx.shape(), {saved.strides(), dy.strides(), dx.strides()});
  const index_t value_stride = runs.inner_stride(0), stride = runs.inner_stride(1);
  runs.parallel_run(cpu_grain, [&](const std::array<index_t, 3>& at, index_t count) {
    if constexpr (std::is_same_v<T, C>) {
      if ((value_stride == 1 && stride == 1) || count == 1)
        return loop(p, value + at[0], in + at[1], out + at[2], count);
    }
    for_blocks(count, [&](index_t begin, index_t n) {
      C block[block_length] = {}, from[block_length] = {}, to[block_length];
      load_block(value + at[0] + begin * value_stride, value_stride, n, block);
      load_block(in + at[1] + begin * stride, stride, n, from);
      loop(p, block, from, to, n);
      store_block(to, n, out + at[2] + begin, 1);
    });
  });
}

// y = f(a, b), the same way; a broadcast operand (stride 0) does not need a block either.
template <class T>
void run_binary(typename PointwiseLoops<compute_t<T>>::Pair loop, const Tensor& a, const Tensor& b, const Tensor& y) {
  using C = compute_t<T>;
  const T *left = a.data<T>(), *right = b.data<T>();
  T* out = y.data<T>();
  const StridedLoop<3> runs(y.shape(), {a.strides(), b.strides(), y.strides()});
  const index_t a_stride = runs.inner_stride(0), b_stride = runs.inner_stride(1);
  const auto is_step = [](index_t stride) { return stride == 0 || stride == 1; };
  runs.parallel_run(cpu_grain, [&](const std::array<index_t, 3>& at, index_t count) {
    if constexpr (std::is_same_v<T, C>) {
      if (is_step(a_stride) && is_step(b_stride))
        return loop(left + at[0], a_stride, right + at[1], b_stride, out + at[2], count);
    }
    for_blocks(count, [&](index_t begin, index_t n) {
      C x[block_length] = {}, z[block_length] = {}, to[block_length];
      load_block(left + at[0] + begin * a_stride, a_stride, n, x);
      load_block(right + at[1] + begin * b_stride, b_stride, n, z);
      loop(x, 1, z, 1, to, n);
      store_block(to, n, out + at[2] + begin, 1);
    });
  });
}

}  // namespace

// From a runtime dtype and function to a loop: two look-ups per call, none per element.
void CpuKernels::unary(Unary f, UnaryAttributes p, const Tensor& x, const Tensor& y) {
  visit_floating(
      "unary", x.dtype(), [&]<class T>(Type<T>) { run_unary<T>(PointwiseLoops<compute_t<T>>::value(f), p, x, y); });
}

void CpuKernels::unary_backward(Unary f, UnaryAttributes p, const Tensor& saved, const Tensor& dy, const Tensor& dx) {
  visit_floating("unary_backward", dy.dtype(),
      [&]<class T>(Type<T>) { run_derivative<T>(PointwiseLoops<compute_t<T>>::derivative(f), p, saved, dy, dx); });
}

void CpuKernels::unary_second(Unary f, UnaryAttributes p, const Tensor& saved, const Tensor& dy, const Tensor& dx) {
  // Checked here and not in the loop: an exception must not leave a parallel region.
  if (dy.dtype() == DType::dual)
    fail("unary_second", "dual given; the second derivative of a dual would need nested duals; use f64");
  visit_floating("unary_second", dy.dtype(),
      [&]<class T>(Type<T>) { run_derivative<T>(PointwiseLoops<compute_t<T>>::second(f), p, saved, dy, dx); });
}

void CpuKernels::binary(Binary f, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_floating(
      "binary", a.dtype(), [&]<class T>(Type<T>) { run_binary<T>(PointwiseLoops<compute_t<T>>::pair(f), a, b, y); });
}

}  // namespace whence
