// Picking numbers along an axis by an index, and the adjoint: adding them where the index says.
#include "tensor/cpu/kernels.h"
#include "tensor/device/launch.h"

namespace whence {
namespace {

// x seen as [outer, rows, inner] with the axis in the middle, and index as [lines, count, inner]: one line per outer,
// or, where index has extent 1 on an axis before it, fewer lines that serve several each. No copy of the index is made.
struct Layout {
  index_t outer = 1, rows, count, inner = 1;
  int leading;  // axes that make up `outer`, with their extents and the step of each in lines of the index
  Shape extents, steps;

  index_t line(index_t at) const {  // of the index, for the outer `at` of x
    index_t found = 0;
    for (int k = leading - 1; k >= 0; --k) {
      found += at % extents[k] * steps[k];
      at /= extents[k];
    }
    return found;
  }
};
Layout layout_of(const Shape& x, const Shape& index, int axis, index_t rows) {
  Layout at{.rows = rows, .count = index[axis], .leading = axis, .extents = x, .steps = x};
  index_t step = 1;
  for (int k = axis - 1; k >= 0; --k) {
    at.outer *= x[k];
    at.steps[k] = index[k] == 1 ? 0 : step;
    step *= index[k];
  }
  for (int k = axis + 1; k < index.rank(); ++k) at.inner *= index[k];
  return at;
}

constexpr index_t block = 16;  // of j: where a line of the index lies is worked out once per block

template <class T> struct Pick {
  const T* x;
  const index_t* index;
  T* y;
  Layout at;
  void operator()(index_t unit) const {  // unit: one (outer, block of j)
    const index_t blocks = (at.count + block - 1) / block, outer = unit / blocks, begin = unit % blocks * block;
    const index_t end = begin + block < at.count ? begin + block : at.count;
    const T* from = x + outer * at.rows * at.inner;
    const index_t* places = index + at.line(outer) * at.count * at.inner;
    T* to = y + outer * at.count * at.inner;
    for (index_t j = begin; j < end; ++j)
      for (index_t k = 0; k < at.inner; ++k) to[j * at.inner + k] = from[places[j * at.inner + k] * at.inner + k];
  }
};

// Columns are independent, and each is walked in order. So no two threads meet, and no sum depends on their number.
template <class T> struct Collect {
  const T* x;
  const index_t* index;
  compute_t<T>* y;  // zeroed
  Layout at;
  void operator()(index_t column) const {  // column: one (outer, inner); j in order
    const index_t outer = column / at.inner, k = column % at.inner;
    const T* from = x + outer * at.count * at.inner + k;
    const index_t* places = index + at.line(outer) * at.count * at.inner + k;
    compute_t<T>* into = y + outer * at.rows * at.inner + k;
    for (index_t j = 0; j < at.count; ++j) into[places[j * at.inner] * at.inner] += compute_t<T>(from[j * at.inner]);
  }
};

}  // namespace

void CpuKernels::gather(const Tensor& x, const Tensor& index, int axis, const Tensor& y) {
  const Layout at = layout_of(y.shape(), index.shape(), axis, x.size(axis));
  visit_floating("gather", x.dtype(), [&]<class T>(Type<T>) {
    launch("gather", x.device(), at.outer * ((at.count + block - 1) / block),
        Pick<T>{x.data<T>(), index.data<index_t>(), y.data<T>(), at}, block * at.inner);
  });
}

void CpuKernels::sum_by_index(const Tensor& x, const Tensor& index, int axis, const Tensor& y) {
  const Layout at = layout_of(x.shape(), index.shape(), axis, y.size(axis));
  visit_floating("sum_by_index", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    // 16-bit sums are made in f32 and rounded once at the end.
    const Tensor sums = std::is_same_v<T, C> ? y : Tensor::empty(y.shape(), dtype_of<C>);
    fill(sums, 0);
    launch("sum_by_index", x.device(), at.outer * at.inner,
        Collect<T>{x.data<T>(), index.data<index_t>(), sums.data<C>(), at}, at.count);
    if (!std::is_same_v<T, C>) copy(sums, y);
  });
}

}  // namespace whence
