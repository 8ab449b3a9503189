// What schemes of distances share: tables read at whole steps, and biases of all pairs from one row per distance.
#pragma once

#include <algorithm>
#include <cmath>

#include "autograd/ops.h"
#include "nn/position.h"
#include "tensor/error.h"
#include "tensor/parallel.h"
#include "tensor/raw.h"

namespace whence {

// f(distance) for every pair, once worked out per distance: T [1|b 1 i j], beside the scores
template <class T, class F> [[nodiscard]] Tensor of_each_distance(const AttendContext& at, const F& f) {
  const DistinctDistances distances = distinct_distances_on_cpu(at);
  const Tensor table = Tensor::empty(distances.values.shape(), dtype_of<T>),
               result = Tensor::empty(distances.index.shape(), dtype_of<T>);
  T *values = table.data<T>(), *out = result.data<T>();
  for (index_t n = 0; n < table.numel(); ++n) values[n] = f(distances.values.data<double>()[n]);
  const index_t* which = distances.index.data<index_t>();
  parallel_for(result.numel(), index_t(1) << 14, [&](index_t begin, index_t end) {
    for (index_t n = begin; n < end; ++n) out[n] = values[which[n]];
  });
  return at.here(result);
}

// f(distance), a whole number, for every pair: [1|b 1 i j] i64. Throws Error where a distance
// is not a whole number of steps.
template <class F> [[nodiscard]] Tensor index_of_steps(const char* scheme, const AttendContext& at, const F& f) {
  return of_each_distance<index_t>(at, [&](double distance) -> index_t {
    if (distance != std::floor(distance)) {
      fail(scheme, "a distance of ", distance,
          " given; whole distances required, as its table has a row for each; leave out what "
          "stretches positions");
    }
    return f(static_cast<index_t>(distance));
  });
}

// rows [n h], index [1|b 1 i j] -> [1|b h i j], a view
[[nodiscard]] inline Tensor bias_from_rows(const Tensor& rows, const Tensor& index, Site here = Site::current()) {
  const Tensor by_pair = take_rows(rows, raw::to_device(select(index, 1, 0), rows.device()), here);  // [1|b i j h]
  return permute(by_pair, {0, 3, 1, 2}, here);
}

}  // namespace whence
