// recompute(): less memory for more time: backward computes a function's intermediate results again.  (Chen et al.
// 2016)
#pragma once

#include <functional>
#include <vector>

#include "tensor/tensor.h"

namespace whence {

// Returns y = f(inputs) without saving what f's ops save; backward runs f again. `inputs` must contain every tensor
// that f reads and that needs a gradient, parameters too. f must be a pure function of them (randomness by Stream is).
[[nodiscard]] Tensor recompute(std::function<Tensor(const std::vector<Tensor>&)> f, const std::vector<Tensor>& inputs,
    Site site = Site::current());

}  // namespace whence
