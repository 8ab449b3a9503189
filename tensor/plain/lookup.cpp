// Reading and adding at indices, and at real-valued positions. The axis is moved to the end, so that each row is
// independent.
#include "tensor/index_check.h"
#include "tensor/lerp.h"
#include "tensor/plain/access.h"

namespace whence {

using plain::In, plain::Out;

void index_out_of_range(const IndexCheck& check, const Shape& shape, index_t element, index_t value) {
  fail(check.op, check.argument, " at ", position_of(element, shape), " is ", value, "; a value in [0, ", check.count,
      ") required", check.also < 0 ? to_text(", or ", check.also, " to ignore it") : std::string());
}

Tensor Kernels::checked_index(const IndexCheck& check, const Tensor& index) {
  const In<index_t> at(index);
  for (index_t n = 0; n < index.numel(); ++n)
    if (!check.allows(at(n))) index_out_of_range(check, index.shape(), n, at(n));
  return index;
}

// y_j = x_{index_j}
void Kernels::gather(const Tensor& x, const Tensor& index, int axis, const Tensor& y) {
  visit_floating("gather", x.dtype(), [&]<class T>(Type<T>) {
    const In<T> from(raw::transpose(x, axis, -1));
    const In<index_t> at(raw::transpose(raw::expand(index, y.shape()), axis, -1));
    const Out<T> to(raw::transpose(y, axis, -1));
    for (index_t i = 0; i < to.rows(); ++i)
      for (index_t j = 0; j < to.width(); ++j) to[i][j] = from[i][at[i][j]];
  });
}

// y_n = sum over j with index_j = n of x_j
void Kernels::sum_by_index(const Tensor& x, const Tensor& index, int axis, const Tensor& y) {
  visit_floating("sum_by_index", x.dtype(), [&]<class T>(Type<T>) {
    const Tensor sums = Tensor::zeros(y.shape(), compute_dtype(y.dtype()));
    const In<T> from(raw::transpose(x, axis, -1));
    const In<index_t> at(raw::transpose(raw::expand(index, x.shape()), axis, -1));
    const Out<compute_t<T>> sum(raw::transpose(sums, axis, -1));
    for (index_t i = 0; i < from.rows(); ++i)
      for (index_t j = 0; j < from.width(); ++j) sum[i][at[i][j]] += from[i][j];
    Kernels::copy(sums, y);
  });
}

// into[index_i, :] += from[i, :]
void Kernels::scatter_add_rows(const Tensor& index, const Tensor& from, const Tensor& into) {
  visit_floating("scatter_add_rows", from.dtype(), [&]<class T>(Type<T>) {
    const Tensor sums = raw::cast(raw::to_device(into, Device::cpu()), compute_dtype(into.dtype()));
    const In<T> x(from);
    const Out<compute_t<T>> sum(sums);
    visit_index("scatter_add_rows", index.dtype(), [&]<class I>(Type<I>) {
      const In<I> row(index);
      for (index_t i = 0; i < x.rows(); ++i)
        for (index_t k = 0; k < x.width(); ++k) sum[row(i)][k] += x[i][k];
    });
    Kernels::copy(sums, into);
  });
}

// y_j = (1-w) t[a] + w t[c],  a = floor(p_j),  c = ceil(p_j),  w = p_j - a,  p clamped to [0, n-1]  (tensor/lerp.h)
void Kernels::lerp_at(const Tensor& table, const Tensor& position, const Tensor& y) {
  visit_floating("lerp_at", table.dtype(), position.dtype(), [&]<class T, class P>(Type<T>, Type<P>) {
    using C = compute_t<T>;
    const In<T> t(table);
    const In<P> p(position);
    const Out<T> to(y);
    for (index_t i = 0; i < to.rows(); ++i)
      for (index_t j = 0; j < to.width(); ++j) {
        const C given = static_cast<C>(p[i][j]);
        const PlaceInTable<C> at(given, t.width());
        to[i][j] = (C(1) - at.share) * t[i][at.below] + at.share * t[i][at.above()];
      }
  });
}

// dt[a] += (1-w) dy_j,  dt[c] += w dy_j,  dp_j = (t[c] - t[a]) dy_j
void Kernels::lerp_at_backward(
    const Tensor& table, const Tensor& position, const Tensor& dy, const Tensor& dtable, const Tensor& dposition) {
  visit_floating("lerp_at", table.dtype(), position.dtype(), [&]<class T, class P>(Type<T>, Type<P>) {
    using C = compute_t<T>;
    const Tensor sums = Tensor::zeros(dtable.shape(), dtype_of<C>);
    const In<T> t(table), g(dy);
    const In<P> p(position);
    const Out<P> dp(dposition);
    const Out<C> dt(sums);
    for (index_t i = 0; i < g.rows(); ++i)
      for (index_t j = 0; j < g.width(); ++j) {
        const C given = static_cast<C>(p[i][j]);
        const PlaceInTable<C> at(given, t.width());
        dt[i][at.below] += (C(1) - at.share) * g[i][j];
        dt[i][at.above()] += at.share * g[i][j];
        dp[i][j] = (t[i][at.above()] - t[i][at.below]) * g[i][j];
      }
    Kernels::copy(sums, dtable);
  });
}

}  // namespace whence
