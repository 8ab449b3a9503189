// Ops with several results: y_0, y_1, ... = op(in...), made by one kernel and taken back by one.
//
//   struct Op {
//     static constexpr const char* name = "op";
//     struct Saved { ... };
//     std::array<Tensor, 2> forward(Saved& saved, const Tensor& x, ...) const;
//     Grads<N> backward(const Saved& saved, const std::array<Tensor, 2>& dy, Needs<N> needs) const;
//   };
//   auto [sum, normed] = apply_joint<2>(Op{}, at, x, ...);
//
// A node has one result, so each y_k has a node of its own, which leads to the op's. What arrives there is handed on as
// it is, without being joined into one tensor; backward runs when all has arrived. dy_k is undefined where nobody read
// y_k. Backward has no derivative of its own: create_graph through it is refused. Whoever walks the graph to learn about
// it (autograd/inspect/ways.h, zeros.h, explain.h, CheckFinite) meets each result as an op of its own, whose inputs are the op's
// and whose gradient is dy_k: what goes from node to node is then the numbers alone.
#pragma once

#include <array>
#include <utility>

#include "autograd/inspect/probe.h"
#include "autograd/op.h"
#include "autograd/releasing.h"

namespace whence {
namespace detail {

inline bool results_apart() { return !probes_keep_gradients || check_finite; }

template <std::size_t K> class JointNode : public Node {
 public:
  using Node::Node;
  // Node::backward and Node::again of all results, and of one.
  virtual void backward_of(
      const std::array<Tensor, K>& dy, std::span<const bool> needed, std::span<Tensor> gradients) = 0;
  virtual Tensor again_of(std::size_t which, const std::vector<Tensor>& in) const = 0;
  std::array<Tensor, K> arrived;  // dy_k of the last pass that came by y_k
};

// The node of the op. It has no result; the "gradient" by which a pass gets here counts what came by each y_k, so that
// nothing is taken that an earlier pass, ended by an error, left behind.
template <class Op, std::size_t K, std::size_t N> class JointOpNode final : public JointNode<K> {
 public:
  JointOpNode(Op&& operation, const Site& made_at) : JointNode<K>(made_at), op(std::move(operation)) {
    this->shape = Shape{K};
  }
  const char* name() const override { return Op::name; }
  std::span<const Ref<Node>> inputs() const override { return edges; }
  void backward(const Tensor& count, std::span<const bool> needed, std::span<Tensor> gradients) override {
    std::array<Tensor, K> dy = std::exchange(this->arrived, {});
    for (std::size_t k = 0; k < K; ++k)
      if (count.data<float>()[k] == 0) dy[k] = {};
    backward_of(dy, needed, gradients);
  }
  void backward_of(
      const std::array<Tensor, K>& dy, std::span<const bool> needed, std::span<Tensor> gradients) override {
    if (this->released_) refuse_released(*this);
    if (whence::recording()) refuse_second_derivative(*this);
    Grads<N> result = op.backward(saved, dy, needed.template first<N>());
    for (std::size_t k = 0; k < N; ++k) gradients[k] = std::move(result[k]);
  }
  Tensor again_of(std::size_t which, const std::vector<Tensor>& in) const override;
  void release_saved() override {
    for (const SavedTensor* held = this->first_saved(); held; held = held->next())
      const_cast<SavedTensor*>(held)->release();
    this->released_ = true;
  }

  Op op;
  typename Op::Saved saved;
  std::array<Ref<Node>, N> edges;
};

// The node of one result.
template <std::size_t K> class ResultNode final : public Node {
 public:
  ResultNode(JointNode<K>* op, std::size_t which, const Site& made_at)
      : Node(made_at), op_(op), edge_{Ref<Node>(op)}, which_(which) {}
  const char* name() const override { return op_->name(); }
  std::span<const Ref<Node>> inputs() const override {
    return results_apart() ? op_->inputs() : std::span<const Ref<Node>>(edge_);
  }
  Tensor again(const std::vector<Tensor>& in) const override { return op_->again_of(which_, in); }
  void backward(const Tensor& dy, std::span<const bool> needed, std::span<Tensor> gradients) override {
    if (released_) refuse_released(*this);
    if (results_apart()) {
      std::array<Tensor, K> alone;
      alone[which_] = dy;
      const ReleasingScope keeping(false);  // the other results need what the op saved, too
      return op_->backward_of(alone, needed, gradients);
    }
    op_->arrived[which_] = dy;
    gradients[0] = Tensor::zeros({K});
    gradients[0].template data<float>()[which_] = 1;
  }
  void release_saved() override { released_ = true; }

 private:
  JointNode<K>* op_;
  std::array<Ref<Node>, 1> edge_;
  std::size_t which_;
};

}  // namespace detail

// Recorded when recording() and any input has history, as apply() does.
template <std::size_t K, class Op, class... In>
[[nodiscard]] std::array<Tensor, K> apply_joint(Op op, const Site& at, const In&... in) {
  constexpr std::size_t count = sizeof...(In);
  const CallSite place(at, Op::name);
  if ((... || detail::is_dual(in)) && (... || detail::is_constant_beside_duals(in)))
    return apply_joint<K>(std::move(op), at, detail::beside_duals(in)...);
  const OpTimer timer(Op::name);
  std::array<Tensor, K> y;
  const bool records = recording() && (... || (in.link() != nullptr));
  const RecordingScope values_only(false);
  if (records) {
    using Joint = detail::JointOpNode<Op, K, count>;
    Ref<Joint> node(new Joint(std::move(op), at));
    {
      const detail::Exchange saving(detail::saving_node, node.get());
      y = node->op.forward(node->saved, in...);
    }
    node->edges = {Ref<Node>(node_of(in))...};
    for (std::size_t k = 0; k < K; ++k) {
      Ref<Node> result(new detail::ResultNode<K>(node.get(), k, at));
      result->shape = y[k].shape();
      result->dtype = y[k].dtype();
      if ((... || (y[k].identity() == in.identity()))) y[k] = y[k].detach();
      y[k].set_link(result);
      if (detail::tape) detail::tape->keep(*result, {in...}, y[k]);
    }
  } else {
    const detail::Exchange saving(detail::saving_node, nullptr);
    typename Op::Saved saved;
    y = op.forward(saved, in...);
  }
  if (detail::check_finite)
    for (const Tensor& result : y)
      detail::require_finite(Op::name, "forward", result, std::array<Tensor, count>{in...});
  return y;
}

template <class Op, std::size_t K, std::size_t N>
Tensor detail::JointOpNode<Op, K, N>::again_of(std::size_t which, const std::vector<Tensor>& in) const {
  return [&]<std::size_t... J>(std::index_sequence<J...>) {
    return apply_joint<K>(Op(op), this->site, in[J]...)[which];
  }(std::make_index_sequence<N>());
}

}  // namespace whence
