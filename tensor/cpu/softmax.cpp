// Softmax over rows: y_j = e^(x_j - max x) / sum_l e^(x_l - max x), three passes over a row that stays in cache.
#include <limits>
#include <vector>

#include "tensor/cpu/block.h"
#include "tensor/cpu/kernels.h"
#include "tensor/cpu/rows.h"
#include "tensor/strided_loop.h"

namespace whence {
namespace {

// x and y may be the same row.
template <class C> void softmax_row(const C* x, C* y, index_t width) {
  const C top = maximum_of<C>(x, width);
  for (index_t i = 0; i < width; ++i) y[i] = math::exp(x[i] - top);
  // The largest term is e^0 = 1, so the sum is at least 1 and the quotient is safe.
  const C scale = C(1) / sum_of<C>(width, [y](index_t i) { return y[i]; });
  for (index_t i = 0; i < width; ++i) y[i] = y[i] * scale;
}

// Masked entries count as e^-inf = 0; a row without any other entry is all 0. `low` is a row of scratch.
template <class C>
void masked_softmax_row(
    const C* __restrict x, const unsigned char* __restrict mask, C* __restrict low, C* __restrict y, index_t width) {
  const C nothing = C(-std::numeric_limits<double>::infinity());
  unsigned any = 0;
  for (index_t i = 0; i < width; ++i) any |= mask[i];
  if (any == 0) {
    for (index_t i = 0; i < width; ++i) y[i] = C(0);
    return;
  }
  for (index_t i = 0; i < width; ++i) low[i] = choose(mask[i], x[i], nothing);
  const C top = maximum_of<C>(low, width);
  for (index_t i = 0; i < width; ++i) {
    const C power = math::exp(low[i] - top);
    low[i] = choose(mask[i], power, C(0));
  }
  const C scale = C(1) / sum_of<C>(width, [low](index_t i) { return low[i]; });
  // A kept NaN makes the scale NaN, and so the whole row, as without a mask; masked entries stay 0.
  for (index_t i = 0; i < width; ++i) y[i] = choose(mask[i], low[i] * scale, C(0));
}

// 16-bit rows are widened into a buffer, processed in place, and rounded once when stored.
template <class T> void softmax_rows(const Tensor& x, const Tensor& y) {
  using C = compute_t<T>;
  const index_t width = x.size(-1);
  const T* in = x.data<T>();
  T* out = y.data<T>();
  parallel_for(x.numel() / width, rows_per_chunk(width), [&](index_t begin, index_t end) {
    std::vector<C> buffer(static_cast<std::size_t>(std::is_same_v<T, C> ? 0 : width));
    for (index_t row = begin; row < end; ++row) {
      const C* values = row_as(in + row * width, width, buffer.data());
      if constexpr (std::is_same_v<T, C>) {
        softmax_row(values, out + row * width, width);
      } else {
        softmax_row(values, buffer.data(), width);
        store_block(buffer.data(), width, out + row * width, 1);
      }
    }
  });
}

// The mask's rows can have any strides: a second strided loop, one step per row.
template <class T> void masked_softmax_rows(const Tensor& x, const Tensor& mask, const Tensor& y) {
  using C = compute_t<T>;
  const index_t width = x.size(-1), mask_stride = mask.strides()[-1];
  const StridedLoop<1> walk(x.shape().leading(-1), {mask.strides().leading(-1)});
  const index_t step = walk.inner_stride(0);
  const T* in = x.data<T>();
  const auto* where = reinterpret_cast<const unsigned char*>(mask.data<bool>());
  T* out = y.data<T>();
  parallel_for(walk.count(), rows_per_chunk(width), [&](index_t begin, index_t end) {
    const std::size_t length = static_cast<std::size_t>(width);
    std::vector<C> values(length), low(length), result(length);
    std::vector<unsigned char> packed(mask_stride == 1 ? 0 : length);
    index_t row = begin;
    walk.run(begin, end, [&](const std::array<index_t, 1>& at, index_t count) {
      for (index_t r = 0; r < count; ++r, ++row) {
        const unsigned char* mask_row = where + at[0] + r * step;
        if (mask_stride != 1) {  // packed once per row, so that the loops over the row read contiguous memory
          for (index_t i = 0; i < width; ++i) packed[static_cast<std::size_t>(i)] = mask_row[i * mask_stride];
          mask_row = packed.data();
        }
        masked_softmax_row(row_as(in + row * width, width, values.data()), mask_row, low.data(), result.data(), width);
        store_block(result.data(), width, out + row * width, 1);
      }
    });
  });
}

// dx = y (dy - sum_l y_l dy_l)
template <class T> void softmax_backward_rows(const Tensor& y, const Tensor& dy, const Tensor& dx) {
  using C = compute_t<T>;
  const index_t width = y.size(-1);
  const T *pattern = y.data<T>(), *in = dy.data<T>();
  T* out = dx.data<T>();
  parallel_for(y.numel() / width, rows_per_chunk(width), [&](index_t begin, index_t end) {
    const std::size_t length = static_cast<std::size_t>(width);
    std::vector<C> p_buffer(length), d_buffer(length), result(length);
    for (index_t row = begin; row < end; ++row) {
      const C* p = row_as(pattern + row * width, width, p_buffer.data());
      const C* d = row_as(in + row * width, width, d_buffer.data());
      C* __restrict to = result.data();
      if constexpr (std::is_same_v<T, C>) to = out + row * width;
      const C mean = sum_of<C>(width, [p, d](index_t i) { return p[i] * d[i]; });
      for (index_t i = 0; i < width; ++i) to[i] = p[i] * (d[i] - mean);
      if constexpr (!std::is_same_v<T, C>) store_block(to, width, out + row * width, 1);
    }
  });
}

}  // namespace

void CpuKernels::softmax(const Tensor& x, const Tensor& mask, const Tensor& y) {
  if (x.numel() == 0) return;
  visit_real("softmax", x.dtype(), [&]<class T>(Type<T>) {
    if (mask.defined()) return masked_softmax_rows<T>(x, mask, y);
    softmax_rows<T>(x, y);
  });
}

void CpuKernels::softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) {
  if (y.numel() == 0) return;
  visit_real("softmax_backward", y.dtype(), [&]<class T>(Type<T>) { softmax_backward_rows<T>(y, dy, dx); });
}

}  // namespace whence
