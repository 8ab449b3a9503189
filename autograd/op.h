// What an op is, and apply(), which runs and records one.
//
//   struct Square {
//     static constexpr const char* name = "square";
//     struct Saved { SavedTensor x; };
//     Tensor forward(Saved& saved, const Tensor& x) const;
//     Grads<1> backward(const Saved& saved, const Tensor& dy, Needs<1> needs) const;
//     static Samples<Square> samples();
//   };
//   Tensor square(const Tensor& x, Site at) { return apply(Square{}, at, x); }
//   static const Checked<Square> checked;  // and every generic test follows
//
// forward checks its arguments under the names that the public function gives them. It works on values: it makes the
// output and calls its kernel, kernels(device). tensor/raw.h has what several ops need. backward is made of functions
// of autograd/ops.h, so that it can itself be differentiated. It checks nothing that forward has checked. An op whose
// backward is the op itself checks in the public function instead.
//
// Attributes are members, with the meaning that the public function documents. `static constexpr bool once = true;`
// says that backward is a kernel without a derivative of its own: create_graph through it is refused. Optional: `static
// BadInputs bad_inputs()`; for a family of functions in one op `const char* label() const`, which graphs and errors
// show instead of the name; `stops(saved, input)`, `by_element(input)` and `parts(saved)` with `backward_of_part(saved,
// dy, needs, part)`, which autograd/node.h explains.
#pragma once

#include <array>
#include <utility>

#include "autograd/inspect/op_clock.h"
#include "autograd/inspect/tape.h"
#include "autograd/recording.h"
#include "autograd/saved.h"

namespace whence {

template <std::size_t N> using Grads = std::array<Tensor, N>;
template <std::size_t N> using Needs = std::span<const bool, N>;

template <class Op>
concept Once = requires { requires Op::once; };

namespace detail {

// Beside duals (autograd/check/gradcheck.h) every other floating input is a constant: a dual whose tangent is 0.
inline bool is_dual(const Tensor& x) { return x.defined() && x.dtype() == DType::dual; }
inline bool is_constant_beside_duals(const Tensor& x) {
  return x.defined() && x.dtype() != DType::dual && is_floating(x.dtype());
}
Tensor beside_duals(const Tensor& x);

inline thread_local bool check_finite = false;
void require_finite(const char* op, const char* pass, const Tensor& result, std::span<const Tensor> inputs);
[[noreturn]] void refuse_released(const Node& node);
[[noreturn]] void refuse_second_derivative(const Node& node);

template <class Op> const char* label_of(const Op& op) {
  if constexpr (requires { op.label(); })
    return op.label();
  else
    return Op::name;
}

template <class Op, std::size_t N> class OpNode final : public Node {
 public:
  OpNode(Op&& operation, const Site& made_at) : Node(made_at), op(std::move(operation)) {}

  const char* name() const override { return label_of(op); }
  std::span<const Ref<Node>> inputs() const override { return edges; }
  void backward(const Tensor& dy, std::span<const bool> needed, std::span<Tensor> gradients) override {
    if (released_) refuse_released(*this);
    if constexpr (Once<Op>) {
      if (whence::recording()) refuse_second_derivative(*this);
    }
    Grads<N> result = op.backward(saved, dy, needed.template first<N>());
    for (std::size_t k = 0; k < N; ++k) gradients[k] = std::move(result[k]);
  }
  std::vector<Stop> stops(std::size_t input) const override {
    if constexpr (requires { op.stops(saved, input); }) return op.stops(saved, input);
    return {};
  }
  bool by_element(std::size_t input) const override {
    if constexpr (requires { op.by_element(input); }) return op.by_element(input);
    return false;
  }
  std::vector<std::string> parts() const override {
    if constexpr (requires { op.parts(saved); }) return op.parts(saved);
    return {};
  }
  void backward_of_part(
      std::size_t part, const Tensor& dy, std::span<const bool> needed, std::span<Tensor> gradients) override {
    if constexpr (requires { op.parts(saved); }) {
      Grads<N> result = op.backward_of_part(saved, dy, needed.template first<N>(), part);
      for (std::size_t k = 0; k < N; ++k) gradients[k] = std::move(result[k]);
    }
  }
  Tensor again(const std::vector<Tensor>& inputs) const override;
  void release_saved() override {
    for (const SavedTensor* held = first_saved(); held; held = held->next()) const_cast<SavedTensor*>(held)->release();
    released_ = true;
  }

  Op op;
  typename Op::Saved saved;
  std::array<Ref<Node>, N> edges;
};

}  // namespace detail

// y = op(in...), recorded when recording() and any input has history. Integer and boolean inputs never have.
template <class Op, class... In> [[nodiscard]] Tensor apply(Op op, const Site& at, const In&... in) {
  static_assert((std::is_same_v<In, Tensor> && ...));
  constexpr std::size_t count = sizeof...(In);
  const CallSite place(at, detail::label_of(op));
  if ((... || detail::is_dual(in)) && (... || detail::is_constant_beside_duals(in)))
    return apply(std::move(op), at, detail::beside_duals(in)...);
  const OpTimer timer(detail::label_of(op));
  Tensor y;
  if (recording() && (... || (in.link() != nullptr))) {
    Ref<detail::OpNode<Op, count>> node(new detail::OpNode<Op, count>(std::move(op), at));
    {
      const RecordingScope values_only(false);
      const detail::Exchange saving(detail::saving_node, node.get());
      y = node->op.forward(node->saved, in...);
      if ((... || (y.identity() == in.identity())))
        y = y.detach();  // raw::contiguous and its like may give their argument back
    }
    node->edges = {Ref<Node>(node_of(in))...};
    node->shape = y.shape();
    node->dtype = y.dtype();
    y.set_link(node);
    if (detail::tape) detail::tape->keep(*node, {in...}, y);
  } else {
    const RecordingScope values_only(false);
    const detail::Exchange saving(detail::saving_node, nullptr);
    typename Op::Saved saved;
    y = op.forward(saved, in...);
    if ((... || (y.identity() == in.identity()))) y = y.detach();
  }
  if (detail::check_finite)
    detail::require_finite(detail::label_of(op), "forward", y, std::array<Tensor, count>{in...});
  return y;
}

template <class Op, std::size_t N> Tensor detail::OpNode<Op, N>::again(const std::vector<Tensor>& inputs) const {
  return [&]<std::size_t... K>(std::index_sequence<K...>) { return apply(Op(op), site, inputs[K]...); }(
             std::make_index_sequence<N>());
}

}  // namespace whence
