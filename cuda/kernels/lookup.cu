// Lookup along an axis by an index, and the adjoint: adding at the index.
#include "tensor/lookup.h"

#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/lane_tables.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/launch.h"

namespace whence {
namespace gpu {
namespace {

template <class T> struct Pick {
  const T* x;
  const index_t* index;
  T* y;
  Lookup at;
  WHENCE_HD void operator()(index_t i) const {
    const auto [outer, rest] = at.line_length(i);
    const index_t place = index[at.line(outer)[0] * at.line_length.by() + rest];
    y[i] = x[(outer * at.rows + place) * at.inner.by() + at.inner(rest).rest];
  }
};

// Along the last axis: one line per warp, whose lanes read neighbours.
// Per element: 1 number and 8 bytes of index read, 1 operation: memory; for long tables, shared by lanes, their rounds.
template <class T> struct SumLines {
  using C = compute_t<T>;
  static constexpr const char* name = "sum_by_index";
  static constexpr int threads = TablePlan::warps * Thread::warp_size;
  Global<const T> x;
  Global<const index_t> index;
  Global<T> y;
  Lookup at;
  TablePlan plan;
  WHENCE_HD void operator()(Thread& t) const {
    const LaneTables<C> sums(t, at.rows, plan);
    const index_t outer = sums.line;
    if (outer >= at.outer) return;
    const index_t places = at.line(outer)[0] * at.count;
    for (index_t begin = 0; begin < at.count; begin += Thread::warp_size) {
      const index_t j = begin + t.lane();
      const bool valid = j < at.count;
      const index_t place = valid ? index[places + j] : 0;
      const Number<C> value = valid ? load<C>(x, outer * at.count + j) : Number<C>(C(0));
      sums.one_at_a_time([&] {
        if (valid) sums.add(place, value);
      });
    }
    sums.each_sum([&](index_t row, Number<C> total) { store(y, outer * at.rows + row, total); });
  }
};

}  // namespace
}  // namespace gpu

void CudaKernels::gather(const Tensor& x, const Tensor& index, int axis, const Tensor& y) {
  if (y.numel() == 0) return;
  const Lookup at = Lookup::of(y.shape(), index.shape(), axis, x.size(axis));
  visit_real("gather", x.dtype(), [&]<class T>(Type<T>) {
    launch("gather", x.device(), y.numel(), gpu::Pick<T>{x.data<T>(), index.data<index_t>(), y.data<T>(), at});
  });
}

void CudaKernels::sum_by_index(const Tensor& x, const Tensor& index, int axis, const Tensor& y) {
  if (x.numel() == 0) return fill(y, 0);
  const Lookup at = Lookup::of(x.shape(), index.shape(), axis, y.size(axis));
  visit_real("sum_by_index", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const gpu::TablePlan plan = gpu::TablePlan::of<C>(at.rows);
    if (at.inner.by() == 1 && plan.tables > 0)
      return gpu::launch_kernel(
          gpu::SumLines<T>{gpu::global<const T>(x), gpu::global<const index_t>(index), gpu::global<T>(y), at, plan},
          {.blocks = plan.blocks(at.outer), .shared_bytes = plan.shared_bytes});
    // Neighbouring columns are contiguous, or no table fits into the block's memory: a column per thread.
    const Tensor sums = std::is_same_v<T, C> ? y : Tensor::empty(y.shape(), dtype_of<C>, y.device());
    fill(sums, 0);
    launch("sum_by_index", x.device(), at.outer * at.inner.by(),
        SumColumns<T>{x.data<T>(), index.data<index_t>(), sums.data<C>(), at}, at.count);
    if (!std::is_same_v<T, C>) copy(sums, y);
  });
}

}  // namespace whence
