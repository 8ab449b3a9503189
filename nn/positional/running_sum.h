// Running sums whose differences are read: sums of many tokens, of which f32 has lost what neighbours differ by.
#pragma once

#include "autograd/ops.h"

namespace whence {

// y_t = sum_{l<=t} x_l along an axis, in f64 (a dual stays one): sums stay so wide until their difference is taken.
[[nodiscard]] inline Tensor running_sum(const Tensor& x, int axis, Site site = Site::current()) {
  return cumulative_sum(cast(x, DType::f64, site), axis, site);
}

}  // namespace whence
