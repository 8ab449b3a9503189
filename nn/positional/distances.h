// What schemes of distances share: tables read at whole steps, and biases of all pairs from one row per distance.
#pragma once

#include <algorithm>
#include <cmath>

#include "autograd/ops.h"
#include "nn/position.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {

// f(distance), a whole number, for every pair: [1|b 1 i j] i64. Throws Error where a distance
// is not a whole number of steps.
template <class F> [[nodiscard]] Tensor index_of_steps(const char* scheme, const AttendContext& at, const F& f) {
  const Tensor distance = contiguous(at.distance_on_cpu()), index = Tensor::empty(distance.shape(), DType::i64);
  const double* d = distance.data<double>();
  for (index_t n = 0; n < distance.numel(); ++n) {
    if (d[n] != std::floor(d[n])) {
      fail(scheme, "a distance of ", d[n],
          " given; whole distances required, as its table has a row for each; leave out what "
          "stretches positions");
    }
    index.data<index_t>()[n] = f(static_cast<index_t>(d[n]));
  }
  return at.here(index);
}

// rows [n h], index [1|b 1 i j] -> [1|b h i j], a view
[[nodiscard]] inline Tensor bias_from_rows(const Tensor& rows, const Tensor& index, Site here = Site::current()) {
  const Tensor by_pair = take_rows(rows, raw::to_device(select(index, 1, 0), rows.device()), here);  // [1|b i j h]
  return permute(by_pair, {0, 3, 1, 2}, here);
}

}  // namespace whence
