// The definition of an op, and apply(), which runs and records one.
//
//   struct Square {
//     static constexpr const char* name = "square";
//     struct Saved { SavedTensor x; };
//     Tensor forward(Saved& saved, const Tensor& x) const;
//     Grads<1> backward(const Saved& saved, const Tensor& dy, Needs<1> needs) const;
//   };
//   Tensor square(const Tensor& x, Site site) { return apply(Square{}, site, x); }
//
// forward checks its arguments under the names that the public function gives them. It works on values: it allocates
// the output and calls the op's kernel, kernels(device). It may also use any function of autograd/ops.h or
// tensor/raw.h; inside forward nothing is recorded. backward normally calls functions of autograd/ops.h, so that it can
// itself be differentiated. needs[i] is true if the gradient of input i is wanted; else Tensor() may take its place.
// backward does not repeat the checks of forward. If backward applies the same op, it calls apply(), and the checks are
// in the public function. A Site is the source line of the user's call, for errors and reports.
//
// Attributes are members, documented at the public function. Optional members:
//
//   const char* label() const                  shown by graphs and errors instead of the name, for a family of functions
//   static constexpr bool once = true          the op can be differentiated only once: create_graph is refused
//   Tensor composed(in) const, with            the op made of others, and its inputs, of which forward saved what
//     static std::array<Tensor, N> inputs(saved)   create_graph differentiates: needed if backward calls a kernel
//   stops, by_element, broadcasts, factor      for the tools that look into a graph (autograd/inspectable.h)
//
// An op with several results returns them from forward as a std::array<Tensor, K>, and so does apply(). Its backward
// takes `std::span<const Tensor, K> dy`, with dy[k] undefined if result k was not used.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "autograd/observer.h"
#include "autograd/recording.h"
#include "autograd/saved.h"

namespace whence {

template <std::size_t N> using Grads = std::array<Tensor, N>;
template <std::size_t N> using Needs = std::span<const bool, N>;

template <class Op>
concept Once = requires { requires Op::once; };

namespace detail {

// Support for duals, numbers with their derivative in one direction, the tangent (autograd/check/gradcheck.h). If one
// input is dual, each other floating input becomes a dual with tangent 0.
bool mixes_duals(std::span<const Tensor* const> inputs);
Tensor beside_duals(const Tensor& x);

// Sets dx to the gradients of f at these inputs, as functions of the inputs and dy. (autograd/gradients_of.cpp)
void differentiate(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& f,
    const std::vector<Tensor>& inputs, std::span<const Tensor> dy, std::span<Tensor> dx);

[[noreturn]] void refuse_released(const Node& node);
[[noreturn]] void refuse_second_derivative(const Node& node);

template <class Op> const char* label_of(const Op& op) {
  if constexpr (requires { op.label(); })
    return op.label();
  else
    return Op::name;
}

// The type that Op's forward returns: a Tensor, or several in an array.
template <class Op, class... In>
using ResultsOf =
    decltype(std::declval<const Op&>().forward(std::declval<typename Op::Saved&>(), std::declval<const In&>()...));
inline std::span<Tensor, 1> each_of(Tensor& y) { return std::span<Tensor, 1>(&y, 1); }
template <std::size_t K> std::span<Tensor, K> each_of(std::array<Tensor, K>& y) { return y; }

template <class Op, class... In> class OpNode final : public Inspected<Node, Op> {
 public:
  using Results = ResultsOf<Op, In...>;
  static constexpr std::size_t count = sizeof...(In);
  static constexpr std::size_t result_count = decltype(each_of(std::declval<Results&>()))::extent;

  OpNode(Op&& operation, const Site& made_at) : Inspected<Node, Op>(std::move(operation), made_at, result_count) {}

  const char* name() const override { return label_of(this->op); }
  std::span<const Edge> inputs() const override { return edges; }
  void backward(std::span<const Tensor> dy, std::span<const bool> needed, std::span<Tensor> dx) override {
    if (this->released_) refuse_released(*this);
    if (Once<Op> && whence::recording()) refuse_second_derivative(*this);
    if constexpr (requires { &Op::composed; }) {
      if (whence::recording()) return differentiate_composed(dy, dx);
    }
    const Needs<count> needs = needed.template first<count>();
    Grads<count> found;
    if constexpr (std::is_same_v<Results, Tensor>)
      found = this->op.backward(this->saved, dy[0], needs);
    else
      found = this->op.backward(this->saved, dy.template first<result_count>(), needs);
    std::ranges::move(found, dx.begin());
  }
  std::vector<Tensor> rerun(const std::vector<Tensor>& inputs) const override;
  void release_saved() override {
    for (const SavedTensor* held = this->first_saved(); held; held = held->next())
      const_cast<SavedTensor*>(held)->release();
    this->released_ = true;
  }

  std::array<Edge, count> edges;

 private:
  void differentiate_composed(std::span<const Tensor> dy, std::span<Tensor> dx) const {
    const auto f = [this](const std::vector<Tensor>& in) {
      Results y = this->op.composed(in);
      return std::vector<Tensor>(each_of(y).begin(), each_of(y).end());
    };
    const std::array<Tensor, count> inputs = Op::inputs(this->saved);
    detail::differentiate(f, {inputs.begin(), inputs.end()}, dy, dx);
  }
};

// Runs the op's forward on values; what it saves belongs to `node` (may be null).
template <class Op, class... In>
ResultsOf<Op, In...> forward(const Op& op, typename Op::Saved& saved, Node* node, const In&... in) {
  const RecordingScope values_only(false);
  const Exchange saving(saving_node, node);
  ResultsOf<Op, In...> y = op.forward(saved, in...);
  for (Tensor& each : each_of(y))
    if ((... || (each.identity() == in.identity())))
      each = each.detach();  // raw::contiguous and similar functions may return their argument
  return y;
}

}  // namespace detail

// Returns y = op(in...), recorded if recording() and any input has history: it is a leaf whose gradient is wanted, or was
// computed from one. Integer and boolean inputs never have.
template <class Op, class... In>
[[nodiscard]] detail::ResultsOf<Op, In...> apply(Op op, const Site& site, const In&... in) {
  const char* const label = detail::label_of(op);
  const CallSite place(site, label);
  if (detail::mixes_duals(std::array{&in...})) return apply(std::move(op), site, detail::beside_duals(in)...);
  detail::Watched run(label, false);
  detail::ResultsOf<Op, In...> y;
  Ref<detail::OpNode<Op, In...>> node;
  if (recording() && (... || (in.link() != nullptr))) {
    node = Ref(new detail::OpNode<Op, In...>(std::move(op), site));
    y = detail::forward(node->op, node->saved, node.get(), in...);
    node->edges = {edge_of(in)...};
    const auto results = detail::each_of(y);
    for (std::size_t k = 0; k < results.size(); ++k) node->made(results[k], static_cast<std::uint8_t>(k));
  } else {
    typename Op::Saved saved;
    y = detail::forward(op, saved, nullptr, in...);
  }
  if (run) run.ended(node.get(), std::array<Tensor, sizeof...(In)>{in...}, detail::each_of(y));
  return y;
}

template <class Op, class... In>
std::vector<Tensor> detail::OpNode<Op, In...>::rerun(const std::vector<Tensor>& inputs) const {
  Results y = [&]<std::size_t... K>(std::index_sequence<K...>) {
    return apply(Op(this->op), this->site, inputs[K]...);
  }(std::make_index_sequence<count>());
  return {each_of(y).begin(), each_of(y).end()};
}

}  // namespace whence
