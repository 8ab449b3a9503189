#include "autograd/graph.h"

#include <algorithm>

#include "autograd/backward.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {

// ---- Nodes

static std::uint64_t next_ids(std::size_t count) {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(count, std::memory_order_relaxed);
}

Node::Node(const Site& made_at, std::size_t results) : id(next_ids(results)), site(made_at), further_(results - 1) {
  if (detail::scope_path) path = *detail::scope_path;
}

void Node::made(const Tensor& y, std::uint8_t k) {
  Result& result = k == 0 ? first_ : further_[k - 1u];
  result = {y.shape(), y.dtype()};
  y.set_link(Ref<GraphLink>(this), k);
}

// Deleting a node releases its inputs, which may be the last owners of theirs, and so on. A worklist replaces the
// recursion.
void Node::dispose() {
  static thread_local Node* pending = nullptr;
  static thread_local bool draining = false;
  next_disposed_ = pending;
  pending = this;
  if (draining) return;
  draining = true;
  while (pending) {
    Node* node = pending;
    pending = node->next_disposed_;
    delete node;
  }
  draining = false;
}

void SavedTensor::save(const Tensor& value, const Edge& source, bool is_output) {
  Node* node = detail::saving_node;
  if (!node || !value.defined()) return;
  value_ = value.detach();
  source_ = source;
  version_ = value.storage().version();
  is_output_ = is_output;
  if (!std::exchange(listed_, true)) next_ = std::exchange(node->first_saved_, this);
}

Tensor SavedTensor::get() const {
  if (!value_.defined()) return {};
  Storage& storage = value_.storage();
  if (storage.version() != version_) {
    const Node* node = detail::backward_node;
    fail("backward", node ? node->name() : "op", " recorded at ", node ? to_string(node->site) : "?", " saved a ",
        value_.dtype(), " ", value_.shape(), " that was overwritten at ", to_string(storage.last_write()),
        "; backward needs the numbers it saw; write to a copy, or write after backward");
  }
  if (!recording()) return value_;
  const bool reshaped = source_ && !(source_.node->result(source_.result).shape == value_.shape());
  Tensor with_history = (reshaped ? raw::reshape(value_, source_.node->result(source_.result).shape) : value_).detach();
  with_history.set_link(is_output_ ? Ref<Node>(detail::backward_node) : source_.node, source_.result);
  return with_history;
}

// ---- Leaves: the tensors to differentiate with respect to, and the sums of their gradients' terms

Tensor requires_grad(const Tensor& leaf, Site site) {
  const CallSite place(site);
  raw::require_floating("requires_grad", "leaf", leaf);
  if (node_of(leaf) && !node_of(leaf)->is_leaf()) {
    fail(
        "requires_grad", to_text("a result of ", node_of(leaf)->name(), " given; a leaf required; use detach() first"));
  }
  if (!node_of(leaf)) Ref<Leaf>(new Leaf(site))->made(leaf);
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
  if (node.gradient.defined() && !node.is_own) node.gradient = detail::own(node.gradient), node.is_own = true;
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

void Leaf::accumulate(const Tensor& dx) {
  const DType sum_dtype = compute_dtype(result().dtype);
  if (!gradient.defined())
    gradient = dx, is_own = false;
  else if (is_own && gradient.is_contiguous() && gradient.is_only_handle() && gradient.dtype() == sum_dtype &&
           !recording() && !gradient.link())
    raw::add_into(detail::in_dtype(dx, sum_dtype), gradient);
  else
    gradient = raw::add(detail::in_dtype(gradient, sum_dtype), detail::in_dtype(dx, sum_dtype)), is_own = true;
}

namespace detail {

Tensor in_dtype(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : raw::cast(x, dtype); }

Tensor own(const Tensor& x) {
  if (x.is_contiguous() && x.is_only_handle()) return x;
  const Tensor alone = raw::copy(x);
  alone.set_link(Ref<GraphLink>(x.link()), x.result_of_link());
  return alone;
}

// ---- Walks

void Arrived::add(Tensor term, const Edge& edge) {
  const DType dtype = edge.node->result(edge.result).dtype;
  const DType sum_dtype = edge.node->is_leaf() ? compute_dtype(dtype) : dtype;
  if (++terms_ == 1)
    gradient_ = std::move(term);
  else if (whence::recording())
    gradient_ = whence::add(gradient_, term);
  else if (terms_ == 2)
    gradient_ = raw::add(in_dtype(gradient_, sum_dtype), in_dtype(term, sum_dtype));
  else
    raw::add_into(in_dtype(term, sum_dtype), gradient_);
}

static std::vector<const Node*> nodes_from(const Node* root) {
  std::vector<const Node*> found{root};
  std::unordered_set<const Node*> seen{root};
  for (std::size_t next = 0; next < found.size(); ++next) {
    for (const Edge& input : found[next]->inputs())
      if (input && seen.insert(input.node.get()).second) found.push_back(input.node.get());
  }
  std::ranges::sort(found, {}, &Node::id);
  return found;
}

std::vector<const Node*> nodes_behind(const char* op, const Tensor& y) {
  if (!y.link()) fail(op, "a ", y.shape(), " without history given; a result of recorded ops required");
  return nodes_from(node_of(y));
}

Wanted::Wanted(const Node* root, Ids targets) : targets_(std::move(targets)) {
  for (const Node* node : nodes_from(root))
    if (std::ranges::any_of(node->inputs(), [&](const Edge& input) { return input && (*this)(input); }))
      leading_.insert(node);
}

// ---- Support of apply() (autograd/op.h)

static bool is_constant(const Tensor& x) { return x.defined() && x.dtype() != DType::dual && is_floating(x.dtype()); }

bool mixes_duals(std::span<const Tensor* const> inputs) {
  const auto is_dual = [](const Tensor* x) { return x->defined() && x->dtype() == DType::dual; };
  return std::ranges::any_of(inputs, is_dual) &&
         std::ranges::any_of(inputs, [](const Tensor* x) { return is_constant(*x); });
}
Tensor beside_duals(const Tensor& x) { return is_constant(x) ? raw::cast(x, DType::dual) : x; }

void refuse_released(const Node& node) {
  fail("backward", node.name(), " recorded at ", to_string(node.site),
      " has released what it saved; a second backward through one graph needs keep_graph in the first");
}

void refuse_second_derivative(const Node& node) {
  fail("backward", node.name(), " recorded at ", to_string(node.site),
      " is differentiable once; create_graph goes through ops with composed backwards only; use "
      "the composed form; for attention, executor=reference");
}

}  // namespace detail
}  // namespace whence
