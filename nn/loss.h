// Losses besides cross_entropy (autograd/ops.h). Shapes must agree exactly: a loss that broadcasts hides a mistake.
#pragma once

#include "tensor/tensor.h"

namespace whence {

// Mean of (x - target)^2 over all elements, a scalar.
[[nodiscard]] Tensor mean_squared_error(const Tensor& x, const Tensor& target, Site at = Site::current());

}  // namespace whence
