// Whether numbers are numbers: one pass over memory that adds nothing and branches nowhere, so that asking is cheap.
#pragma once

#include "tensor/tensor.h"

namespace whence {

// True when no element of x is infinite or NaN; of a dual both halves count. REQUIRES: x is floating and on the CPU.
[[nodiscard]] bool all_finite(const Tensor& x);

}  // namespace whence
