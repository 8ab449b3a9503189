// What schemes of distances share: tables read at whole steps, and biases of all pairs from one row per distance.
#pragma once

#include <algorithm>
#include <cmath>

#include "autograd/ops.h"
#include "nn/attention/position.h"
#include "tensor/error.h"

namespace whence {

// f(distance) for every pair, worked out once per distance: T [1|b 1 i j], beside the scores
template <class T, class F> [[nodiscard]] Tensor of_each_distance(const AttendContext& at, const F& f) {
  const PairDistances distances = pair_distances(at);
  const index_t count = distances.values.numel();
  const Tensor table = Tensor::empty({1, count}, dtype_of<T>);
  for (index_t n = 0; n < count; ++n) table.data<T>()[n] = f(distances.values.data<double>()[n]);
  return distances.read(at.here(table));
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

}  // namespace whence
