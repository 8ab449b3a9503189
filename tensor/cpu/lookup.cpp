// Picking numbers along an axis by an index, and the adjoint: adding them where the index says.
#include <algorithm>

#include "tensor/cpu/kernels.h"
#include "tensor/parallel.h"

namespace whence {
namespace {

// x seen as [outer, rows, inner] with the axis in the middle, and index as [lines, count, inner]: one line per outer,
// or, where index has extent 1 on an axis before it, fewer lines that serve several each. No copy of the index is made.
struct Layout {
  index_t outer, rows, count, inner;
  Shape leading;  // the axes that make up `outer`
  Strides steps;  // of each of them, in lines of the index

  index_t line(index_t at) const {  // of the index, for the outer `at` of x
    index_t found = 0;
    for (int k = leading.rank() - 1; k >= 0; at /= leading[k--]) found += at % leading[k] * steps[k];
    return found;
  }
};
// `x` has the index's extents but for those before the axis.
Layout layout_of(const Shape& x, const Shape& index, int axis, index_t rows) {
  const Shape leading = x.leading(axis);
  Strides steps = contiguous_strides(index.leading(axis));
  for (int k = 0; k < axis; ++k)
    if (index[k] == 1) steps[k] = 0;
  index_t inner = 1;
  for (int k = axis + 1; k < index.rank(); ++k) inner *= index[k];
  return {numel(leading), rows, index[axis], inner, leading, steps};
}

}  // namespace

void CpuKernels::gather(const Tensor& x, const Tensor& index, int axis, const Tensor& y) {
  const Layout at = layout_of(y.shape(), index.shape(), axis, x.size(axis));
  constexpr index_t block = 16;  // of j: where a line of the index lies is worked out once per block
  const index_t blocks = (at.count + block - 1) / block;
  visit_floating("gather", x.dtype(), [&]<class T>(Type<T>) {
    parallel_for(at.outer * blocks, rows_per_chunk(block * at.inner), [&](index_t first, index_t last) {
      for (index_t unit = first; unit < last; ++unit) {
        const index_t outer = unit / blocks, begin = unit % blocks * block, end = std::min(begin + block, at.count);
        const T* from = x.data<T>() + outer * at.rows * at.inner;
        const index_t* places = index.data<index_t>() + at.line(outer) * at.count * at.inner;
        T* to = y.data<T>() + outer * at.count * at.inner;
        for (index_t j = begin; j < end; ++j)
          for (index_t k = 0; k < at.inner; ++k) to[j * at.inner + k] = from[places[j * at.inner + k] * at.inner + k];
      }
    });
  });
}

// Columns (outer, inner) are independent, and each is walked in order. So no two threads meet, and no sum depends on
// their number.
void CpuKernels::sum_by_index(const Tensor& x, const Tensor& index, int axis, const Tensor& y) {
  const Layout at = layout_of(x.shape(), index.shape(), axis, y.size(axis));
  visit_floating("sum_by_index", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    // 16-bit sums are made in f32 and rounded once at the end.
    const Tensor sums = std::is_same_v<T, C> ? y : Tensor::empty(y.shape(), dtype_of<C>);
    fill(sums, 0);
    parallel_for(at.outer * at.inner, rows_per_chunk(at.count), [&](index_t first, index_t last) {
      for (index_t column = first; column < last; ++column) {
        const index_t outer = column / at.inner, k = column % at.inner;
        const T* from = x.data<T>() + outer * at.count * at.inner + k;
        const index_t* places = index.data<index_t>() + at.line(outer) * at.count * at.inner + k;
        C* into = sums.data<C>() + outer * at.rows * at.inner + k;
        for (index_t j = 0; j < at.count; ++j) into[places[j * at.inner] * at.inner] += C(from[j * at.inner]);
      }
    });
    if (!std::is_same_v<T, C>) copy(sums, y);
  });
}

}  // namespace whence
