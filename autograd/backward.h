// Gradients: grad(y, seed, inputs) returns them; backward(loss) leaves them on the leaves.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "tensor/tensor.h"

namespace whence {

// Marks `leaf` as a tensor to differentiate with respect to. Error if it is not floating or is the result of an op.
Tensor requires_grad(const Tensor& leaf, Site site = Site::current());
bool tracked(const Tensor& tensor);  // true if it has history: a leaf, or computed from one
// Returns the gradient that backward has accumulated: undefined before the first backward, Error if not a leaf. It is
// contiguous, shares its numbers with no other gradient, and no later backward changes it. The gradient of a 16-bit leaf
// is f32 once it is a sum of several terms.
Tensor gradient(const Tensor& leaf);
void clear_gradient(const Tensor& leaf);  // Error if not a leaf
// Sets the gradient to a sum made elsewhere. It has the leaf's shape and device, and the dtype of the leaf's gradient
// or of its sums, else Error. The leaf keeps the tensor itself; later terms are added to a copy.
void set_gradient(const Tensor& leaf, const Tensor& gradient);

struct GradOptions {
  bool create_graph = false;  // record the backward pass, so that its result can be differentiated again
  bool allow_unused = false;  // an input that y does not depend on gets an undefined tensor instead of an Error
};

// Returns (d y / d inputs)' seed: one tensor per input, of that input's shape and dtype, as gradient() does. `seed` has y's shape and
// dtype; an undefined seed means 1 and requires a scalar y. Inputs may be leaves or intermediate results. The graph is
// kept: a second call returns the same bits. Error if y has no history, if the seed does not fit, if y does not depend
// on an input, or if a saved tensor was released or written to. With create_graph, also Error at an op that can be
// differentiated only once.
[[nodiscard]] std::vector<Tensor> grad(const Tensor& y, const Tensor& seed, const std::vector<Tensor>& inputs,
    GradOptions options = {}, Site site = Site::current());

struct BackwardOptions {
  // Keeps what the ops saved, for another backward through this graph. By default it is freed on the way.
  bool keep_graph = false;
};

// Adds d loss / d leaf to every leaf's gradient. `loss` is a scalar, or `seed` has its shape and dtype. Throws the
// Errors of grad(). Gradients added and memory freed before an Error stay so.
void backward(const Tensor& loss, const Tensor& seed = {}, BackwardOptions options = {}, Site site = Site::current());

// Returns (d f / d inputs)' dy as functions of `inputs` and dy. A backward that is a kernel returns these while it is
// recorded (create_graph). f is the op written with functions of autograd/ops.h, which have gradients themselves.
// Entries are undefined for inputs that are undefined or have no history, and 0 where f does not depend on the input.
// `leaves`: inputs are passed unchanged, because f may also reach them by its own handles (a module's parameters).
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
