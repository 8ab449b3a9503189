// Values of query-key pairs by distance (tensor/pairs.h).
#include "tensor/pairs.h"

#include "tensor/plain/access.h"

namespace whence {

using plain::In, plain::Out;

namespace {

// steps(b, i, j) = max(query[b, i] - key[b, j], lowest), counted from the lowest one
struct StepRows {
  index_t lowest;
  In<index_t> query, key;
  explicit StepRows(const Steps& steps) : lowest(steps.lowest), query(steps.query), key(steps.key) {}
  index_t operator()(index_t b, index_t i, index_t j) const {
    const index_t step = query[query.rows() == 1 ? 0 : b][i] - key[key.rows() == 1 ? 0 : b][j] - lowest;
    return std::max<index_t>(step, 0);
  }
};

}  // namespace

// y[b, h, i, j] = table[h, steps(b, i, j)]
void Kernels::read_by_distance(const Steps& steps, const Tensor& table, const Tensor& y) {
  const index_t heads = y.size(1), rows = y.size(2);
  const StepRows step(steps);
  visit(y.dtype(), [&]<class T>(Type<T>) {
    const In<T> from(table);
    const Out<T> to(y);
    for (index_t row = 0; row < to.rows(); ++row)
      for (index_t j = 0; j < to.width(); ++j)
        to[row][j] = from[row / rows % heads][step(row / rows / heads, row % rows, j)];
  });
}

// dtable[h, n] = sum over b, i, j with steps(b, i, j) = n of dy[b, h, i, j]
void Kernels::sum_by_distance(const Steps& steps, const Tensor& dy, const Tensor& dtable) {
  const index_t heads = dy.size(1), rows = dy.size(2);
  const StepRows step(steps);
  visit_floating("sum_by_distance", dy.dtype(), [&]<class T>(Type<T>) {
    using W = plain::wide_t<T>;
    const Tensor sums = Tensor::zeros(dtable.shape(), dtype_of<W>);
    const In<T> g(dy);
    const Out<W> sum(sums);
    for (index_t row = 0; row < g.rows(); ++row)
      for (index_t j = 0; j < g.width(); ++j)
        sum[row / rows % heads][step(row / rows / heads, row % rows, j)] += W(g[row][j]);
    Kernels::copy(sums, dtable);
  });
}

// mask[b, 0, i, j]: i' - before <= j <= i' + after with i' = first_row + i, and present[b, 0, 0, j]
void Kernels::band_mask(const Band& band, const Tensor& present, const Tensor& mask) {
  const index_t rows = mask.size(2);
  const In<bool> real(present);
  const Out<bool> seen(mask);
  for (index_t row = 0; row < seen.rows(); ++row)
    for (index_t j = 0; j < seen.width(); ++j) {
      const index_t ahead = j - (band.first_row + row % rows);
      seen[row][j] = -band.before <= ahead && ahead <= band.after && (!real || real[row / rows][j]);
    }
}

}  // namespace whence
