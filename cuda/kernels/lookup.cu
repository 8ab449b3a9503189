// Picking numbers along an axis by an index, and the adjoint: adding them where the index says.
// x is seen as [outer, rows, inner] with the axis in the middle, and index as [lines, count, inner]. A
// line may serve several outers.
#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/lane_tables.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/device/launch.h"
#include "tensor/strided_index.h"

namespace whence {
namespace gpu {
namespace {

struct Layout {
  StridedIndex<1> line;  // from the number of an outer to that of its line
  index_t outer, rows, count;
  Divisor inner, line_length;  // count inner
};
// `with_index` has the index's extents but for those before the axis, where it has x's.
Layout layout_of(const Shape& with_index, const Shape& index, int axis, index_t rows) {
  const Shape leading = with_index.leading(axis);
  Strides steps = contiguous_strides(index.leading(axis));
  for (int k = 0; k < axis; ++k)
    if (index[k] == 1) steps[k] = 0;
  index_t inner = 1;
  for (int k = axis + 1; k < index.rank(); ++k) inner *= index[k];
  const index_t numbers = numel(with_index);
  return {StridedIndex<1>(leading, {steps}), numel(leading), rows, index[axis], {inner, numbers},
      {index[axis] * inner, numbers}};
}

template <class T> struct Pick {
  const T* x;
  const index_t* index;
  T* y;
  Layout at;
  WHENCE_HD void operator()(index_t i) const {
    const auto [outer, rest] = at.line_length(i);
    const index_t place = index[at.line(outer)[0] * at.line_length.by() + rest];
    y[i] = x[(outer * at.rows + place) * at.inner.by() + at.inner(rest).rest];
  }
};

// One column (outer, inner) per thread, its terms one after another: where neighbouring columns lie side by side, or
// where no table fits the block's memory.
template <class T> struct SumColumns {
  const T* x;
  const index_t* index;
  compute_t<T>* y;  // zeroed
  Layout at;
  WHENCE_HD void operator()(index_t column) const {
    const auto [outer, k] = at.inner(column);
    const index_t inner = at.inner.by();
    const T* from = x + outer * at.line_length.by() + k;
    const index_t* places = index + at.line(outer)[0] * at.line_length.by() + k;
    compute_t<T>* into = y + outer * at.rows * inner + k;
    for (index_t j = 0; j < at.count; ++j) into[places[j * inner] * inner] += compute_t<T>(from[j * inner]);
  }
};

// Along the last axis: one line per warp, whose lanes read it side by side.
// Per element: 1 number and 8 bytes of index read, 1 operation: memory; for long tables, shared by lanes, their turns.
template <class T> struct SumLines {
  using C = compute_t<T>;
  static constexpr const char* name = "sum_by_index";
  static constexpr int threads = TablePlan::warps * Thread::warp_size;
  Global<const T> x;
  Global<const index_t> index;
  Global<T> y;
  Layout at;
  int tables;
  WHENCE_HD void operator()(Thread& t) const {
    const LaneTables<C> sums(t, at.rows, tables);
    const index_t outer = t.block() * TablePlan::warps + t.warp();
    if (outer >= at.outer) return;
    const index_t places = at.line(outer)[0] * at.count;
    for (index_t begin = 0; begin < at.count; begin += Thread::warp_size) {
      const index_t j = begin + t.lane();
      const bool valid = j < at.count;
      const index_t place = valid ? index[places + j] : 0;
      const Number<C> value = valid ? load<C>(x, outer * at.count + j) : Number<C>(C(0));
      sums.in_turns([&] {
        if (valid) sums.add(place, value);
      });
    }
    sums.each_sum([&](index_t row, Number<C> total) { store(y, outer * at.rows + row, total); });
  }
};

}  // namespace
}  // namespace gpu

void CudaKernels::gather(const Tensor& x, const Tensor& index, int axis, const Tensor& y) {
  const gpu::Layout at = gpu::layout_of(y.shape(), index.shape(), axis, x.size(axis));
  visit_floating("gather", x.dtype(), [&]<class T>(Type<T>) {
    launch("gather", x.device(), y.numel(), gpu::Pick<T>{x.data<T>(), index.data<index_t>(), y.data<T>(), at});
  });
}

void CudaKernels::sum_by_index(const Tensor& x, const Tensor& index, int axis, const Tensor& y) {
  const gpu::Layout at = gpu::layout_of(x.shape(), index.shape(), axis, y.size(axis));
  visit_floating("sum_by_index", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const gpu::TablePlan plan = gpu::TablePlan::of<C>(at.rows);
    if (at.inner.by() == 1 && plan.tables > 0) {
      return gpu::launch_kernel(gpu::SumLines<T>{gpu::global<const T>(x), gpu::global<const index_t>(index),
                                    gpu::global<T>(y), at, plan.tables},
          {.blocks = gpu::blocks_for(at.outer, gpu::TablePlan::warps), .shared_bytes = plan.shared_bytes});
    }
    const Tensor sums = std::is_same_v<T, C> ? y : Tensor::empty(y.shape(), dtype_of<C>, y.device());
    fill(sums, 0);
    launch("sum_by_index", x.device(), at.outer * at.inner.by(),
        gpu::SumColumns<T>{x.data<T>(), index.data<index_t>(), sums.data<C>(), at}, at.count);
    if (!std::is_same_v<T, C>) copy(sums, y);
  });
}

}  // namespace whence
