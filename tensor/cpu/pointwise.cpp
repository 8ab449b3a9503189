// Unary and binary functions: runs of any stride and dtype, cut into blocks for plain loops over a compute type.
#include <algorithm>

#include "tensor/cpu/block.h"
#include "tensor/cpu/kernels.h"
#include "tensor/strided_loop.h"

namespace whence {
namespace {

// y[i] = f(x[0][i], ...) for `count` numbers of a compute type. Operand k has stride step[k]: 1, or 0 for one number. A
// loop is chosen once per call, and runs once per block.
template <class C, std::size_t N>
using Loop = void (*)(
    UnaryAttributes p, const std::array<const C*, N>& x, const std::array<index_t, N>& step, C* y, index_t count);

template <class C> Loop<C, 1> value_loop(Unary function) {
  return visit(function, []<class F>(F) -> Loop<C, 1> {
    return [](UnaryAttributes p, const auto& from, const auto&, C* __restrict y, index_t count) {
      const C* __restrict x = from[0];
      for (index_t i = 0; i < count; ++i) y[i] = F::value(x[i], p);
    };
  });
}

// dx = dy f'(saved)
template <class C> Loop<C, 2> derivative_loop(Unary function) {
  return visit(function, []<class F>(F) -> Loop<C, 2> {
    return [](UnaryAttributes p, const auto& from, const auto&, C* __restrict dx, index_t count) {
      const C* __restrict saved = from[0], * __restrict dy = from[1];
      for (index_t i = 0; i < count; ++i) dx[i] = dy[i] * F::derivative(saved[i], p);
    };
  });
}

template <class C> Loop<C, 2> pair_loop(Binary function) {
  return visit(function, []<class F>(F) -> Loop<C, 2> {
    return [](UnaryAttributes, const auto& from, const auto& step, C* y, index_t count) {
      C* __restrict out = y;
      const C* __restrict left = from[0], * __restrict right = from[1];
      if (from[0] == y && step[0] == 1 && step[1] == 1) {  // in place: one pointer, so the compiler need not assume
                                                           // overlap
        for (index_t i = 0; i < count; ++i) out[i] = F::value(out[i], right[i]);
      } else if (step[0] == 1 && step[1] == 1) {
        for (index_t i = 0; i < count; ++i) out[i] = F::value(left[i], right[i]);
      } else if (step[0] == 1) {
        const C constant = *right;
        for (index_t i = 0; i < count; ++i) out[i] = F::value(left[i], constant);
      } else if (step[1] == 1) {
        const C constant = *left;
        for (index_t i = 0; i < count; ++i) out[i] = F::value(constant, right[i]);
      } else {
        std::fill_n(out, count, F::value(*left, *right));
      }
    };
  });
}

// A run of a compute type whose operands have stride 1 (or 0, if the loop `broadcasts`) goes straight to the loop.
// Other runs pass through blocks on the stack.
template <class T, std::size_t N>
void run(Loop<compute_t<T>, N> loop, UnaryAttributes p, const std::array<const Tensor*, N>& x, const Tensor& y,
    bool broadcasts = false) {
  using C = compute_t<T>;
  std::array<Strides, N + 1> strides;
  std::array<const T*, N> in;
  for (std::size_t k = 0; k < N; ++k) strides[k] = x[k]->strides(), in[k] = x[k]->template data<T>();
  strides[N] = y.strides();
  T* out = y.data<T>();
  const StridedLoop<N + 1> runs(y.shape(), strides);
  std::array<index_t, N> step, ones;
  ones.fill(1);
  for (std::size_t k = 0; k < N; ++k) step[k] = runs.inner_stride(static_cast<int>(k));
  const bool straight =
      std::ranges::all_of(step, [broadcasts](index_t by) { return by == 1 || (broadcasts && by == 0); });
  runs.parallel_run(cpu_grain, [&](const std::array<index_t, N + 1>& at, index_t count) {
    std::array<const C*, N> from;
    if constexpr (std::is_same_v<T, C>) {
      for (std::size_t k = 0; k < N; ++k) from[k] = in[k] + at[k];
      if (straight || count == 1) return loop(p, from, step, out + at[N], count);
    }
    for (index_t begin = 0; begin < count; begin += block_length) {
      const index_t n = std::min(block_length, count - begin);
      C blocks[N][block_length] = {}, to[block_length];
      for (std::size_t k = 0; k < N; ++k) {
        load_block(in[k] + at[k] + begin * step[k], step[k], n, blocks[k]);
        from[k] = blocks[k];
      }
      loop(p, from, ones, to, n);
      store_block(to, n, out + at[N] + begin, 1);
    }
  });
}

}  // namespace

void CpuKernels::unary(Unary f, UnaryAttributes p, const Tensor& x, const Tensor& y) {
  visit_real("unary", x.dtype(), [&]<class T>(Type<T>) { run<T, 1>(value_loop<compute_t<T>>(f), p, {&x}, y); });
}

void CpuKernels::unary_backward(Unary f, UnaryAttributes p, const Tensor& saved, const Tensor& dy, const Tensor& dx) {
  visit_real("unary_backward", dy.dtype(), [&]<class T>(Type<T>) {
    run<T, 2>(derivative_loop<compute_t<T>>(f), p, {&saved, &dy}, dx);
  });
}

void CpuKernels::binary(Binary f, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_real("binary", a.dtype(), [&]<class T>(Type<T>) {
    run<T, 2>(pair_loop<compute_t<T>>(f), {}, {&a, &b}, y, true);
  });
}

}  // namespace whence
