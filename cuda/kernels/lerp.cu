// Reading a table at real-valued positions, and its gradients.
//   y_j  = (1-w) t[a] + w t[c],   a = floor(p_j),  c = ceil(p_j),  w = p_j - a        p_j clamped to [0, n-1]
#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/lane_tables.h"
#include "cuda/vocabulary/rows.h"
#include "tensor/divisor.h"
#include "tensor/launch.h"
#include "tensor/lookup.h"

namespace whence {
namespace gpu {
namespace {

template <class T, class P> struct LerpValues {
  const T* table;
  const P* position;
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

// dt[a] += (1-w) dy,  dt[c] += w dy,  dp = (t[c] - t[a]) dy: the lanes of a line read neighbouring positions.
// Per position: 2 numbers read, 1 written, about 15 operations: memory; for long tables, which lanes share, their
// rounds.
template <class T, class P, int pack> struct LerpGradients {
  using C = compute_t<T>;
  static constexpr const char* name = "lerp_at_backward";
  static constexpr int threads = TablePlan::warps * Thread::warp_size;
  Global<const T> table, dy;
  Global<const P> position;
  Global<T> dtable;
  Global<P> dposition;
  index_t outer, rows, width;
  TablePlan plan;
  WHENCE_HD void operator()(Thread& t) const {
    const LaneTables<C> sums(t, rows, plan);
    const bool has_line = sums.line < outer;
    const Global<const T> line = table + sums.line * rows;
    for (index_t begin = 0; begin < width; begin += sums.lanes * pack) {
      const index_t j = begin + sums.member * pack, i = sums.line * width + j;
      const bool valid = has_line && j < width;
      Numbers<C, pack> p = {}, g = {};
      if (valid) p = load_numbers<C, pack>(position, i), g = load_numbers<C, pack>(dy, i);
      sums.one_at_a_time([&] {
        if (!valid) return;
        for (int k = 0; k < pack; ++k) {
          const PlaceInTable<Number<C>> at(p.of[k], rows);
          sums.add(at.below, (Number<C>(C(1)) - at.share) * g.of[k]);
          if (at.above() == at.below) {
            p.of[k] = Number<C>(C(0));
          } else {
            sums.add(at.above(), at.share * g.of[k]);
            p.of[k] = (load<C>(line, at.above()) - load<C>(line, at.below)) * g.of[k];
          }
        }
        store_numbers(dposition, i, p);
      });
    }
    sums.each_sum([&](index_t n, Number<C> total) {
      if (has_line) store(dtable, sums.line * rows + n, total);
    });
  }
};

// The same for tables that do not fit into the block's memory: one position after another, by one thread per table.
template <class T, class P> struct LongLerpGradients {
  using C = compute_t<T>;
  const T *table, *dy;
  const P* position;
  C* dtable;  // zeroed
  P* dposition;
  index_t rows, width;
  WHENCE_HD void operator()(index_t line) const {
    const T* row = table + line * rows;
    C* sum = dtable + line * rows;
    for (index_t i = line * width; i < (line + 1) * width; ++i) {
      const PlaceInTable<C> at(C(position[i]), rows);
      dposition[i] = convert<P>((C(row[at.above()]) - C(row[at.below])) * C(dy[i]));
      sum[at.below] += (C(1) - at.share) * C(dy[i]);
      if (at.above() != at.below) sum[at.above()] += at.share * C(dy[i]);
    }
  }
};

}  // namespace
}  // namespace gpu

using namespace gpu;

void CudaKernels::lerp_at(const Tensor& table, const Tensor& position, const Tensor& y) {
  visit_real("lerp_at", table.dtype(), position.dtype(), [&]<class T, class P>(Type<T>, Type<P>) {
    launch("lerp_at", y.device(), y.numel(),
        LerpValues<T, P>{table.data<T>(), position.data<P>(), y.data<T>(), table.size(-1), {y.size(-1), y.numel()}});
  });
}

void CudaKernels::lerp_at_backward(
    const Tensor& table, const Tensor& position, const Tensor& dy, const Tensor& dtable, const Tensor& dposition) {
  const index_t rows = table.size(-1), width = position.size(-1), outer = table.numel() / rows;
  visit_real("lerp_at", table.dtype(), position.dtype(), [&]<class T, class P>(Type<T>, Type<P>) {
    using C = compute_t<T>;
    // Eight lanes per line: four lines share the work of zeroing and summing the tables.
    const TablePlan plan = TablePlan::of<C>(rows, 8);
    const auto run = [&]<int pack>(std::integral_constant<int, pack>) {
      launch_kernel(LerpGradients<T, P, pack>{global<const T>(table), global<const T>(dy), global<const P>(position),
                        global<T>(dtable), global<P>(dposition), outer, rows, width, plan},
          {.blocks = plan.blocks(outer), .shared_bytes = plan.shared_bytes});
    };
    using Wider = std::conditional_t<(sizeof(T) > sizeof(P)), T, P>;
    if (plan.tables > 0)
      return rows_fit_packs<Wider>(width, {&position, &dy, &dposition})
                 ? run(std::integral_constant<int, pack_size<Wider>>{})
                 : run(std::integral_constant<int, 1>{});
    const Tensor sums = std::is_same_v<T, C> ? dtable : Tensor::empty(dtable.shape(), dtype_of<C>, dtable.device());
    fill(sums, 0);
    launch("lerp_at", dy.device(), outer,
        LongLerpGradients<T, P>{
            table.data<T>(), dy.data<T>(), position.data<P>(), sums.data<C>(), dposition.data<P>(), rows, width},
        4 * width);
    if (!std::is_same_v<T, C>) copy(sums, dtable);
  });
}

}  // namespace whence
