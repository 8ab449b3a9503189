// Values of query-key pairs, read from one row each (tensor/pairs.h).
#include "tensor/pairs.h"

#include <algorithm>
#include <vector>

#include "tensor/convert.h"
#include "tensor/kernels.h"
#include "tensor/parallel.h"

namespace whence {

// y[b, h, i, j] = table[h, steps(b, i, j)]
void Kernels::read_by_distance(const Steps& steps, const Tensor& table, const Tensor& y) {
  const index_t heads = y.size(1), rows = y.size(2), keys = y.size(3);
  if (y.numel() == 0) return;
  visit(y.dtype(), [&]<class T>(Type<T>) {
    parallel_for(y.numel() / keys, rows_per_chunk(keys), [&](index_t begin, index_t end) {
      for (index_t row = begin; row < end; ++row) {
        const index_t b = row / rows / heads, first = row_of(steps.query, b)[row % rows] - steps.lowest;
        const index_t* key = row_of(steps.key, b);
        const T* from = table.data<T>() + row / rows % heads * steps.count;
        T* out = y.data<T>() + row * keys;
        for (index_t j = 0; j < keys; ++j) out[j] = from[std::max<index_t>(first - key[j], 0)];
      }
    });
  });
}

// dtable[h, n] = sum over b, i, j with steps(b, i, j) = n of dy[b, h, i, j]
// Rows are summed in groups, which keeps each sum short.
void Kernels::sum_by_distance(const Steps& steps, const Tensor& dy, const Tensor& dtable) {
  constexpr index_t rows_summed_together = 64;
  const index_t batch = dy.size(0), heads = dy.size(1), rows = dy.size(2), keys = dy.size(3), count = steps.count;
  visit_floating("sum_by_distance", dy.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    parallel_for(heads, 1, [&](index_t begin, index_t end) {
      std::vector<C> total(static_cast<std::size_t>(count)), group(total.size());
      for (index_t h = begin; h < end; ++h) {
        std::fill(total.begin(), total.end(), C(0));
        for (index_t row = 0; row < batch * rows; row += rows_summed_together) {
          std::fill(group.begin(), group.end(), C(0));
          for (index_t r = row; r < std::min(row + rows_summed_together, batch * rows); ++r) {
            const index_t b = r / rows, first = row_of(steps.query, b)[r % rows] - steps.lowest;
            const index_t* key = row_of(steps.key, b);
            const T* in = dy.data<T>() + ((b * heads + h) * rows + r % rows) * keys;
            for (index_t j = 0; j < keys; ++j)
              group[static_cast<std::size_t>(std::max<index_t>(first - key[j], 0))] += C(in[j]);
          }
          for (std::size_t n = 0; n < total.size(); ++n) total[n] += group[n];
        }
        T* out = dtable.data<T>() + h * count;
        for (index_t n = 0; n < count; ++n) out[n] = convert<T>(total[static_cast<std::size_t>(n)]);
      }
    });
  });
}

// mask[b, 0, i, j]: i' - before <= j <= i' + after with i' = first_row + i, and present[b, 0, 0, j]
void Kernels::band_mask(const Band& band, const Tensor& present, const Tensor& mask) {
  const index_t rows = mask.size(2), keys = mask.size(3);
  parallel_for(mask.size(0) * rows, rows_per_chunk(keys), [&](index_t begin, index_t end) {
    for (index_t row = begin; row < end; ++row) {
      const bool* const real = present.defined() ? present.data<bool>() + row / rows * keys : nullptr;
      for (index_t j = 0; j < keys; ++j) {
        const index_t ahead = j - (band.first_row + row % rows);
        mask.data<bool>()[row * keys + j] = -band.before <= ahead && ahead <= band.after && (!real || real[j]);
      }
    }
  });
}

}  // namespace whence
