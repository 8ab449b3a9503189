// Lookup along an axis by an index, and the adjoint: adding at the index, a column per thread.
#include "tensor/lookup.h"

#include "cuda/kernels/kernels.h"
#include "tensor/launch.h"

namespace whence {
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

}  // namespace

void CudaKernels::gather(const Tensor& x, const Tensor& index, int axis, const Tensor& y) {
  if (y.numel() == 0) return;
  const Lookup at = Lookup::of(y.shape(), index.shape(), axis, x.size(axis));
  visit_real("gather", x.dtype(), [&]<class T>(Type<T>) {
    launch("gather", x.device(), y.numel(), Pick<T>{x.data<T>(), index.data<index_t>(), y.data<T>(), at});
  });
}

void CudaKernels::sum_by_index(const Tensor& x, const Tensor& index, int axis, const Tensor& y) {
  if (x.numel() == 0) return fill(y, 0);
  const Lookup at = Lookup::of(x.shape(), index.shape(), axis, y.size(axis));
  visit_real("sum_by_index", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const Tensor sums = std::is_same_v<T, C> ? y : Tensor::empty(y.shape(), dtype_of<C>, y.device());
    fill(sums, 0);
    launch("sum_by_index", x.device(), at.outer * at.inner.by(),
        SumColumns<T>{x.data<T>(), index.data<index_t>(), sums.data<C>(), at}, at.count);
    if (!std::is_same_v<T, C>) copy(sums, y);
  });
}

}  // namespace whence
