// Reading a table at real-valued positions, and its gradients.
//   y_j  = (1-w) t[a] + w t[c],   a = floor(p_j),  c = ceil(p_j),  w = p_j - a        p_j clamped to [0, n-1]
#include "cuda/kernels/kernels.h"
#include "tensor/divisor.h"
#include "tensor/launch.h"
#include "tensor/lookup.h"

namespace whence {
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

// dt[a] += (1-w) dy,  dt[c] += w dy,  dp = (t[c] - t[a]) dy: a thread takes one position of a line after another. CoPE
// is composed of this only where tiles refuse it.
template <class T, class P> struct LerpGradients {
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
    const Tensor sums = std::is_same_v<T, C> ? dtable : Tensor::empty(dtable.shape(), dtype_of<C>, dtable.device());
    fill(sums, 0);
    launch("lerp_at", dy.device(), outer,
        LerpGradients<T, P>{
            table.data<T>(), dy.data<T>(), position.data<P>(), sums.data<C>(), dposition.data<P>(), rows, width},
        4 * width);
    if (!std::is_same_v<T, C>) copy(sums, dtable);
  });
}

}  // namespace whence
