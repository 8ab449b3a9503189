// Gradients: grad(y, seed, inputs) returns them; backward(loss) leaves them on the leaves.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "tensor/tensor.h"

namespace whence {

// Marks `leaf` as something to differentiate by. Error when it is not floating, or is the result of an op.
Tensor requires_grad(const Tensor& leaf, Site site = Site::current());
bool tracked(const Tensor& tensor);  // has history: a leaf, or computed from one
// What backward accumulated; undefined before it ran, Error when not a leaf. A 16-bit leaf's gradient is f32
// once it is a sum of several terms.
Tensor gradient(const Tensor& leaf);
void clear_gradient(const Tensor& leaf);  // Error when not a leaf
// Puts one there: a sum that was made elsewhere, of the leaf's shape, device, and the dtype of its gradient or of its
// sums. Error when it is another. The tensor is the leaf's from now on: later terms are added to a copy.
void set_gradient(const Tensor& leaf, const Tensor& gradient);

struct GradOptions {
  bool create_graph = false;  // record the backward pass, so that its result can be differentiated again
  bool allow_unused = false;  // an input that y does not depend on gives an undefined tensor instead of an Error
};

// (d y / d inputs)' seed, one tensor per input, each of its input's shape and dtype. `seed` has y's shape and dtype;
// undefined means 1 and needs a scalar y. Inputs may be leaves or intermediate results. The graph stays as it was:
// calling again gives the same bits. Throws Error when y has no history, seed is another, y does not depend on an
// input, or what an op saved was released or written over; with create_graph also at an op differentiable once.
[[nodiscard]] std::vector<Tensor> grad(const Tensor& y, const Tensor& seed, const std::vector<Tensor>& inputs,
    GradOptions options = {}, Site site = Site::current());

struct BackwardOptions {
  // Keep what the ops saved, for another backward through this graph. By default it is freed on the way.
  bool keep_graph = false;
};

// Adds d loss / d leaf to every leaf's gradient. `loss` is a scalar, or `seed` of its shape and dtype is given. Throws
// the Errors of grad(); what was added and freed until then stays so.
void backward(const Tensor& loss, const Tensor& seed = {}, BackwardOptions options = {}, Site site = Site::current());

// (d f / d inputs)' dy as functions of `inputs` and dy: what a backward that is a kernel returns while it is recorded
// (create_graph). f is the op as functions of autograd/ops.h, which have gradients themselves. Undefined for inputs
// that are undefined or have no history; 0 where f does not depend on one. `leaves`: they are passed as they are, as f
// may reach them by its own handles too (a module's parameters).
[[nodiscard]] std::vector<Tensor> gradients_of(const std::function<Tensor(const std::vector<Tensor>&)>& f,
    const std::vector<Tensor>& inputs, const Tensor& dy, bool leaves = false);
template <std::size_t N>
[[nodiscard]] std::array<Tensor, N> gradients_of(
    const std::function<Tensor(const std::vector<Tensor>&)>& f, const std::array<Tensor, N>& inputs, const Tensor& dy) {
  std::vector<Tensor> found = gradients_of(f, std::vector<Tensor>(inputs.begin(), inputs.end()), dy);
  std::array<Tensor, N> gradients;
  std::ranges::move(found, gradients.begin());
  return gradients;
}

}  // namespace whence
