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
//   member                                     default   read by
//   const char* label() const                  name      graphs and errors: a struct for a family of functions
//   static constexpr bool once                 false     create_graph, which is refused: differentiable only once
//   Tensor composed(in) const, with            none      create_graph, needed if backward calls a kernel: the op made
//     static std::array<Tensor, N> inputs(saved)         of others, and its inputs, of which forward saved what
//   std::vector<Stop> stops(saved, input)      none      autograd/inspect/zeros.h: why a derivative is 0
//   bool by_element(input) const               false     the same: element e affects only element e of the result
//   static constexpr bool broadcasts           false     autograd/inspect/explain.h: each number is made of one number
//   static constexpr std::size_t factor        none        of each input; the input that is a multiplier
//
// An op with several results returns them from forward as a std::array<Tensor, K>, and so does apply(). Its backward
// takes `std::span<const Tensor, K> dy`, with dy[k] undefined if result k was not used.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "autograd/graph.h"
#include "autograd/observer.h"

namespace whence {

template <std::size_t N> using Grads = std::array<Tensor, N>;
template <std::size_t N> using Needs = std::span<const bool, N>;

namespace detail {  // below
template <class Op, class... In> class OpNode;
template <class Op> const char* label_of(const Op& op);
// If one input is dual, a number with its derivative in one direction (autograd/check/gradcheck.h), each other floating
// input becomes a dual with tangent 0.
bool mixes_duals(std::span<const Tensor* const> inputs);
Tensor beside_duals(const Tensor& x);
// The type that Op's forward returns: a Tensor, or several in an array.
template <class Op, class... In>
using ResultsOf =
    decltype(std::declval<const Op&>().forward(std::declval<typename Op::Saved&>(), std::declval<const In&>()...));
inline std::span<Tensor, 1> each_of(Tensor& y) { return std::span<Tensor, 1>(&y, 1); }
template <std::size_t K> std::span<Tensor, K> each_of(std::array<Tensor, K>& y) { return y; }
template <class Op, class... In>
ResultsOf<Op, In...> forward(const Op& op, typename Op::Saved& saved, Node* node, const In&... in);
}  // namespace detail

// Returns y = op(in...), recorded if recording() and any input has history: it is a leaf whose gradient is wanted, or was
// computed from one. Integer and boolean inputs never have.
template <class Op, class... In>
[[nodiscard]] detail::ResultsOf<Op, In...> apply(Op op, const Site& site, const In&... in) {
  const CallSite place(site, detail::label_of(op));  // for errors
  if (detail::mixes_duals(std::array{&in...})) return apply(std::move(op), site, detail::beside_duals(in)...);
  detail::Watched run(detail::label_of(op), false);  // for observers
  Ref<detail::OpNode<Op, In...>> node;
  if (recording() && (... || node_of(in))) node = Ref(new detail::OpNode<Op, In...>(std::move(op), site, in...));
  typename Op::Saved unrecorded;
  auto y = detail::forward(node ? node->op : op, node ? node->saved : unrecorded, node.get(), in...);
  if (run) run.ended(node.get(), std::array{in...}, detail::each_of(y));
  return y;
}

namespace detail {

// Runs the op's forward on values. `node`, null if nothing is recorded, owns what forward saves, and made the results.
template <class Op, class... In>
ResultsOf<Op, In...> forward(const Op& op, typename Op::Saved& saved, Node* node, const In&... in) {
  const RecordingScope values_only(false);
  const Exchange saving(saving_node, node);
  ResultsOf<Op, In...> y = op.forward(saved, in...);
  std::uint8_t k = 0;
  for (Tensor& each : each_of(y)) {
    if ((... || (each.identity() == in.identity())))
      each = each.detach();  // raw::contiguous and similar functions may return their argument
    if (node) node->made(each, k++);
  }
  return y;
}

template <class Op> const char* label_of(const Op& op) {
  if constexpr (requires { op.label(); })
    return op.label();
  else
    return Op::name;
}

// Sets dx to the gradients of f at these inputs, as functions of the inputs and dy. (autograd/backward.cpp)
void differentiate(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& f,
    const std::vector<Tensor>& inputs, std::span<const Tensor> dy, std::span<Tensor> dx);

[[noreturn]] void refuse_released(const Node& node);
[[noreturn]] void refuse_second_derivative(const Node& node);

template <class Op, class... In> class OpNode final : public Inspected<Node, Op> {
 public:
  using Results = ResultsOf<Op, In...>;
  static constexpr std::size_t count = sizeof...(In);
  static constexpr std::size_t result_count = decltype(each_of(std::declval<Results&>()))::extent;

  OpNode(Op&& operation, const Site& made_at, const In&... in)
      : Inspected<Node, Op>(std::move(operation), made_at, result_count), edges_{edge_of(in)...} {}

  const char* name() const override { return label_of(this->op); }
  std::span<const Edge> inputs() const override { return edges_; }
  void backward(std::span<const Tensor> dy, std::span<const bool> needed, std::span<Tensor> dx) override {
    if (this->released_) refuse_released(*this);
    if constexpr (requires { Op::once; }) {
      if (whence::recording()) refuse_second_derivative(*this);
    }
    if constexpr (requires { &Op::composed; }) {
      if (whence::recording()) {
        const std::array<Tensor, count> inputs = Op::inputs(this->saved);
        const auto f = [this](const std::vector<Tensor>& in) { return listed(this->op.composed(in)); };
        return differentiate(f, {inputs.begin(), inputs.end()}, dy, dx);
      }
    }
    const Needs<count> needs = needed.template first<count>();
    Grads<count> found;
    if constexpr (std::is_same_v<Results, Tensor>)
      found = this->op.backward(this->saved, dy[0], needs);
    else
      found = this->op.backward(this->saved, dy.template first<result_count>(), needs);
    std::ranges::move(found, dx.begin());
  }
  std::vector<Tensor> rerun(const std::vector<Tensor>& inputs) const override {
    return [&]<std::size_t... K>(std::index_sequence<K...>) {
      return listed(apply(Op(this->op), this->site, inputs[K]...));
    }(std::make_index_sequence<count>());
  }
  void release_saved() override {
    for (const SavedTensor* held = this->first_saved(); held; held = held->next())
      const_cast<SavedTensor*>(held)->release();
    this->released_ = true;
  }

 private:
  static std::vector<Tensor> listed(Results y) { return {each_of(y).begin(), each_of(y).end()}; }

  std::array<Edge, count> edges_;
};

}  // namespace detail
}  // namespace whence
