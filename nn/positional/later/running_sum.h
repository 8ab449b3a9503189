// Running sums whose differences are used. Over many tokens f32 would lose the difference between neighbours.
#pragma once

#include "autograd/ops.h"

namespace whence {

// y_t = sum_{l<=t} x_l along an axis, in f64 (a dual stays dual). Sums stay wide until their difference is computed.
[[nodiscard]] inline Tensor running_sum(const Tensor& x, int axis, Site site = Site::current()) {
  return cumulative_sum(cast(x, DType::f64, site), axis, site);
}

}  // namespace whence
