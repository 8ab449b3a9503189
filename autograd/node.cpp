#include "autograd/node.h"

#include <algorithm>

#include "autograd/observer.h"
#include "autograd/op.h"
#include "autograd/saved.h"
#include "tensor/raw.h"

namespace whence {

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

namespace detail {

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
