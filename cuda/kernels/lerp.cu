// Reading a table at real-valued positions, and the gradients of that.
//   y_j  = (1-w) t[a] + w t[c],   a = floor(p_j),  c = ceil(p_j),  w = p_j - a        p_j held in [0, n-1]
#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/lane_tables.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/device/launch.h"
#include "tensor/divisor.h"
#include "tensor/lerp.h"

namespace whence {
namespace gpu {
namespace {

template <class T> struct LerpValues {
  const T *table, *position;
  T* y;
  index_t rows;
  Divisor width;
  WHENCE_HD void operator()(index_t i) const {
    using C = compute_t<T>;
    const T* row = table + width(i).quotient * rows;
    const PlaceInTable<C> at(C(position[i]), rows);
    y[i] = convert<T>((C(1) - at.share) * C(row[at.below]) + at.share * C(row[at.above()]));
  }
};

template <class T> struct PositionGradient {  // dp = (t[c] - t[a]) dy
  const T *table, *position, *dy;
  T* dposition;
  index_t rows;
  Divisor width;
  WHENCE_HD void operator()(index_t i) const {
    using C = compute_t<T>;
    const T* row = table + width(i).quotient * rows;
    const PlaceInTable<C> at(C(position[i]), rows);
    dposition[i] = convert<T>((C(row[at.above()]) - C(row[at.below])) * C(dy[i]));
  }
};

// dt[a] += (1-w) dy,  dt[c] += w dy: one table per warp, whose lanes walk over its positions side by side.
// Per position: 2 numbers read, about 10 operations: memory; for long tables, which lanes share, their turns.
template <class T> struct TableGradient {
  using C = compute_t<T>;
  static constexpr const char* name = "lerp_at, gradient of the table";
  static constexpr int threads = TablePlan::warps * Thread::warp_size;
  Global<const T> position, dy;
  Global<T> dtable;
  index_t outer, rows, width;
  int tables;
  WHENCE_HD void operator()(Thread& t) const {
    const LaneTables<C> sums(t, rows, tables);
    const index_t row = t.block() * TablePlan::warps + t.warp();
    if (row >= outer) return;
    for (index_t begin = 0; begin < width; begin += Thread::warp_size) {
      const index_t j = begin + t.lane();
      const bool valid = j < width;
      const PlaceInTable<Number<C>> at(valid ? load<C>(position, row * width + j) : Number<C>(C(0)), rows);
      const Number<C> g = valid ? load<C>(dy, row * width + j) : Number<C>(C(0));
      sums.in_turns([&] {
        if (!valid) return;
        sums.add(at.below, (Number<C>(C(1)) - at.share) * g);
        if (at.above() != at.below) sums.add(at.above(), at.share * g);
      });
    }
    sums.each_sum([&](index_t n, Number<C> total) { store(dtable, row * rows + n, total); });
  }
};

// The same for tables that do not fit the block's memory: one after another, by one thread per table.
template <class T> struct LongTableGradient {
  using C = compute_t<T>;
  const T *position, *dy;
  C* dtable;  // zeroed
  index_t rows, width;
  WHENCE_HD void operator()(index_t row) const {
    C* sum = dtable + row * rows;
    for (index_t i = row * width; i < (row + 1) * width; ++i) {
      const PlaceInTable<C> at(C(position[i]), rows);
      sum[at.below] += (C(1) - at.share) * C(dy[i]);
      if (at.above() != at.below) sum[at.above()] += at.share * C(dy[i]);
    }
  }
};

template <class T>
void table_gradient(CudaKernels& kernels, const Tensor& position, const Tensor& dy, const Tensor& dtable) {
  using C = compute_t<T>;
  const index_t rows = dtable.size(-1), width = position.size(-1), outer = dtable.numel() / rows;
  const TablePlan plan = TablePlan::of<C>(rows);
  if (plan.tables > 0) {
    return launch_kernel(TableGradient<T>{global<const T>(position), global<const T>(dy), global<T>(dtable), outer,
                             rows, width, plan.tables},
        {.blocks = blocks_for(outer, TablePlan::warps), .shared_bytes = plan.shared_bytes});
  }
  const Tensor sums = std::is_same_v<T, C> ? dtable : Tensor::empty(dtable.shape(), dtype_of<C>, dtable.device());
  kernels.fill(sums, 0);
  launch("lerp_at", dy.device(), outer,
      LongTableGradient<T>{position.data<T>(), dy.data<T>(), sums.data<C>(), rows, width}, 4 * width);
  if (!std::is_same_v<T, C>) kernels.copy(sums, dtable);
}

}  // namespace
}  // namespace gpu

void CudaKernels::lerp_at(const Tensor& table, const Tensor& position, const Tensor& y) {
  visit_floating("lerp_at", y.dtype(), [&]<class T>(Type<T>) {
    launch("lerp_at", y.device(), y.numel(),
        gpu::LerpValues<T>{table.data<T>(), position.data<T>(), y.data<T>(), table.size(-1), {y.size(-1), y.numel()}});
  });
}

void CudaKernels::lerp_at_backward(
    const Tensor& table, const Tensor& position, const Tensor& dy, const Tensor& dtable, const Tensor& dposition) {
  visit_floating("lerp_at", dy.dtype(), [&]<class T>(Type<T>) {
    launch("lerp_at", dy.device(), dy.numel(),
        gpu::PositionGradient<T>{table.data<T>(), position.data<T>(), dy.data<T>(), dposition.data<T>(), table.size(-1),
            {dy.size(-1), dy.numel()}});
    gpu::table_gradient<T>(*this, position, dy, dtable);
  });
}

}  // namespace whence
