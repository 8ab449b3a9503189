// Leaves: the tensors to differentiate with respect to, and the sums of their gradients' terms.
#include "autograd/backward.h"
#include "autograd/node.h"
#include "autograd/recording.h"
#include "tensor/raw.h"

namespace whence {

Tensor requires_grad(const Tensor& leaf, Site site) {
  const CallSite place(site);
  raw::require_floating("requires_grad", "leaf", leaf);
  if (node_of(leaf) && !node_of(leaf)->is_leaf()) {
    fail(
        "requires_grad", to_text("a result of ", node_of(leaf)->name(), " given; a leaf required; use detach() first"));
  }
  if (!node_of(leaf)) {
    Ref<Leaf> node(new Leaf(site));
    node->made(leaf);
  }
  return leaf;
}

bool tracked(const Tensor& tensor) { return tensor.link() != nullptr; }

static Leaf& leaf_of(const char* op, const Tensor& tensor) {
  Node* node = node_of(tensor);
  if (!node || !node->is_leaf())
    fail(op, "a ", tensor.shape(), " that is no leaf given; a tensor made with requires_grad required");
  return static_cast<Leaf&>(*node);
}

Tensor gradient(const Tensor& leaf) {
  Leaf& node = leaf_of("gradient", leaf);
  if (node.gradient.defined() && !std::exchange(node.is_own, true)) node.gradient = detail::own(node.gradient);
  return node.gradient;
}
void clear_gradient(const Tensor& leaf) { leaf_of("clear_gradient", leaf).gradient = {}; }

void set_gradient(const Tensor& leaf, const Tensor& gradient) {
  Leaf& node = leaf_of("set_gradient", leaf);
  raw::require_shape("set_gradient", "gradient", gradient, leaf.shape());
  raw::require_same_device("set_gradient", "leaf", leaf, "gradient", gradient);
  if (gradient.dtype() != leaf.dtype() && gradient.dtype() != compute_dtype(leaf.dtype()))
    fail("set_gradient", "a gradient of ", gradient.dtype(), " given for a leaf of ", leaf.dtype(),
        "; its own dtype, or that of its sums, required");
  node.gradient = gradient, node.is_own = true;
}

Tensor detail::in_dtype(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : raw::cast(x, dtype); }

Tensor detail::own(const Tensor& x) {
  if (x.is_contiguous() && x.is_only_handle()) return x;
  const Tensor alone = raw::copy(x);
  alone.set_link(Ref<GraphLink>(x.link()), x.result_of_link());
  return alone;
}

void Leaf::accumulate(const Tensor& dx) {
  const DType sum_dtype = compute_dtype(result().dtype);
  if (!gradient.defined())
    gradient = dx, is_own = false;
  else if (is_own && gradient.is_only_handle() && gradient.dtype() == sum_dtype && !recording() && !gradient.link())
    raw::add_into(detail::in_dtype(dx, sum_dtype), gradient);
  else
    gradient = raw::add(detail::in_dtype(gradient, sum_dtype), detail::in_dtype(dx, sum_dtype)), is_own = true;
}

}  // namespace whence
