// Lookup along an axis by an index, and the adjoint: adding at the index.
#include "tensor/lookup.h"

#include <algorithm>

#include "tensor/kernels.h"
#include "tensor/parallel.h"

namespace whence {
void Kernels::gather(const Tensor& x, const Tensor& index, int axis, const Tensor& y) {
  if (y.numel() == 0) return;
  const Lookup at = Lookup::of(y.shape(), index.shape(), axis, x.size(axis));
  const index_t inner = at.inner.by();
  constexpr index_t block = 16;  // of j: the line of the index is located once per block
  const index_t blocks = (at.count + block - 1) / block;
  visit_floating("gather", x.dtype(), [&]<class T>(Type<T>) {
    parallel_for(at.outer * blocks, rows_per_chunk(block * inner), [&](index_t first, index_t last) {
      for (index_t unit = first; unit < last; ++unit) {
        const index_t outer = unit / blocks, begin = unit % blocks * block, end = std::min(begin + block, at.count);
        const T* from = x.data<T>() + outer * at.rows * inner;
        const index_t* places = index.data<index_t>() + at.line(outer)[0] * at.count * inner;
        T* to = y.data<T>() + outer * at.count * inner;
        for (index_t j = begin; j < end; ++j)
          for (index_t k = 0; k < inner; ++k) to[j * inner + k] = from[places[j * inner + k] * inner + k];
      }
    });
  });
}

// Columns (outer, inner) are independent, and each is summed in order. So no two threads write the same sum, and no sum
// depends on their number.
void Kernels::sum_by_index(const Tensor& x, const Tensor& index, int axis, const Tensor& y) {
  if (x.numel() == 0) return fill(y, 0);
  const Lookup at = Lookup::of(x.shape(), index.shape(), axis, y.size(axis));
  visit_floating("sum_by_index", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    // 16-bit sums are computed in f32 and rounded once at the end.
    const Tensor sums = std::is_same_v<T, C> ? y : Tensor::empty(y.shape(), dtype_of<C>);
    fill(sums, 0);
    const SumColumns<T> body{x.data<T>(), index.data<index_t>(), sums.data<C>(), at};
    parallel_for(at.outer * at.inner.by(), rows_per_chunk(at.count), [&](index_t first, index_t last) {
      for (index_t column = first; column < last; ++column) body(column);
    });
    if (!std::is_same_v<T, C>) copy(sums, y);
  });
}

}  // namespace whence
