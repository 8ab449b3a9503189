// Less memory for more time: backward computes a function's intermediate results again.  (Chen et al. 2016)
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "tensor/tensor.h"

namespace whence {

// y = f(inputs), without what f's ops save: backward runs f again. `inputs` must name every tensor that f reads and
// that needs a gradient, parameters too. f must be a pure function of them (randomness by Stream is).
[[nodiscard]] Tensor recompute(std::function<Tensor(const std::vector<Tensor>&)> f, const std::vector<Tensor>& inputs,
    Site site = Site::current());

// (d f / d inputs)' dy as functions of `inputs` and dy: what a backward that is a kernel returns while it is recorded
// (create_graph). f is the op as functions of autograd/ops.h, which have gradients themselves. Undefined for inputs
// that are undefined or have no history; 0 where f does not depend on one.
[[nodiscard]] std::vector<Tensor> gradients_of(
    const std::function<Tensor(const std::vector<Tensor>&)>& f, const std::vector<Tensor>& inputs, const Tensor& dy);
template <std::size_t N>
[[nodiscard]] std::array<Tensor, N> gradients_of(
    const std::function<Tensor(const std::vector<Tensor>&)>& f, const std::array<Tensor, N>& inputs, const Tensor& dy) {
  std::vector<Tensor> found = gradients_of(f, std::vector<Tensor>(inputs.begin(), inputs.end()), dy);
  std::array<Tensor, N> gradients;
  std::ranges::move(found, gradients.begin());
  return gradients;
}

}  // namespace whence
