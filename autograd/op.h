// What an op is, and apply(), which runs and records one.
//
//   struct Square {
//     static constexpr const char* name = "square";
//     struct Saved { SavedTensor x; };
//     Tensor forward(Saved& saved, const Tensor& x) const;
//     Grads<1> backward(const Saved& saved, const Tensor& dy, Needs<1> needs) const;
//     static Samples<Square> samples();
//   };
//   Tensor square(const Tensor& x, Site site) { return apply(Square{}, site, x); }
//   static const Checked<Square> checked;  // and every generic test follows
//
// forward checks its arguments under the names that the public function gives them. It works on values: ops in this
// tree make the output and call its kernel, kernels(device); any function of autograd/ops.h or tensor/raw.h may be used
// too, and nothing is recorded in there. backward is made of functions of autograd/ops.h, so that it can itself be
// differentiated. It checks nothing that forward has checked. An op whose backward is the op itself checks in the
// public function instead.
//
// Attributes are members, with the meaning that the public function documents. `static constexpr bool once = true;`
// says that backward has no derivative of its own: create_graph through it is refused. A backward that is a kernel has
// one where it returns gradients_of(the op of other ops, ...) while recording() (autograd/recompute.h). Optional:
// `static std::vector<BadInput> bad_inputs()`, the calls that it refuses (autograd/check/samples.h); for a family of
// functions in one op `const char* label() const`, which graphs and errors show instead of the name; `stops(saved,
// input)`, `by_element(input)` and `static constexpr bool broadcasts`, which autograd/node.h explains.
//
// An op with several results returns them from forward, and so from apply(), as a std::array<Tensor, K>. Its backward
// has `std::span<const Tensor, K> dy`, with dy[k] undefined where nobody read result k.
#pragma once

#include <algorithm>
#include <array>
#include <tuple>
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

void require_finite(const char* op, const char* pass, const Tensor& result, std::span<const Tensor> inputs);
[[noreturn]] void refuse_released(const Node& node);
[[noreturn]] void refuse_second_derivative(const Node& node);

template <class Op> const char* label_of(const Op& op) {
  if constexpr (requires { op.label(); })
    return op.label();
  else
    return Op::name;
}

// What Op's forward returns: a Tensor, or several in an array.
template <class Op, class... In>
using ResultsOf =
    decltype(std::declval<const Op&>().forward(std::declval<typename Op::Saved&>(), std::declval<const In&>()...));
inline std::span<Tensor, 1> each_of(Tensor& y) { return std::span<Tensor, 1>(&y, 1); }
template <std::size_t K> std::span<Tensor, K> each_of(std::array<Tensor, K>& y) { return y; }

template <class Op, class... In> class OpNode final : public Node {
 public:
  using Results = ResultsOf<Op, In...>;
  static constexpr std::size_t count = sizeof...(In);
  static constexpr std::size_t result_count = decltype(each_of(std::declval<Results&>()))::extent;

  OpNode(Op&& operation, const Site& made_at) : Node(made_at, result_count), op(std::move(operation)) {}

  const char* name() const override { return label_of(op); }
  std::span<const Edge> inputs() const override { return edges; }
  void backward(std::span<const Tensor> dy, std::span<const bool> needed, std::span<Tensor> dx) override {
    if (released_) refuse_released(*this);
    if constexpr (Once<Op>) {
      if (whence::recording()) refuse_second_derivative(*this);
    }
    const auto run = [&](const auto& of_results) {
      return op.backward(saved, of_results, needed.template first<count>());
    };
    Grads<count> found;
    if constexpr (std::is_same_v<Results, Tensor>)
      found = run(dy[0]);
    else
      found = run(dy.template first<result_count>());
    std::ranges::move(found, dx.begin());
  }
  std::vector<Stop> stops(std::size_t input) const override {
    if constexpr (requires { op.stops(saved, input); }) return op.stops(saved, input);
    return {};
  }
  bool by_element(std::size_t input) const override {
    if constexpr (requires { op.by_element(input); }) return op.by_element(input);
    return false;
  }
  bool broadcasts() const override {
    if constexpr (requires { Op::broadcasts; }) return Op::broadcasts;
    return false;
  }
  std::vector<Tensor> again(const std::vector<Tensor>& inputs) const override;
  void release_saved() override {
    for (const SavedTensor* held = first_saved(); held; held = held->next()) const_cast<SavedTensor*>(held)->release();
    released_ = true;
  }

  Op op;
  typename Op::Saved saved;
  std::array<Edge, count> edges;
};

}  // namespace detail

// y = op(in...), recorded when recording() and any input has history. Integer and boolean inputs never have.
template <class Op, class... In>
[[nodiscard]] detail::ResultsOf<Op, In...> apply(Op op, const Site& site, const In&... in) {
  static_assert((std::is_same_v<In, Tensor> && ...));
  const char* const label = detail::label_of(op);
  const CallSite place(site, label);
  if ((... || detail::is_dual(in)) && (... || detail::is_constant_beside_duals(in)))
    return apply(std::move(op), site, detail::beside_duals(in)...);
  OpTimer timer(label);
  detail::ResultsOf<Op, In...> y;
  const auto results = detail::each_of(y);
  const auto run = [&](const Op& of, typename Op::Saved& saved, Node* node) {
    const RecordingScope values_only(false);
    const Exchange saving(detail::saving_node, node);
    y = of.forward(saved, in...);
    for (Tensor& each : results)
      if ((... || (each.identity() == in.identity())))
        each = each.detach();  // raw::contiguous and its like may give their argument back
  };
  if (recording() && (... || (in.link() != nullptr))) {
    Ref<detail::OpNode<Op, In...>> node(new detail::OpNode<Op, In...>(std::move(op), site));
    run(node->op, node->saved, node.get());
    node->edges = {edge_of(in)...};
    for (std::size_t k = 0; k < results.size(); ++k) node->made(results[k], static_cast<std::uint8_t>(k));
    if (detail::tape) detail::tape->keep(*node, {in...}, results);
  } else {
    typename Op::Saved saved;
    run(op, saved, nullptr);
  }
  if (detail::check_finite)
    for (const Tensor& each : results)
      detail::require_finite(label, "forward", each, std::array<Tensor, sizeof...(In)>{in...});
  timer.stop();
  return y;
}

namespace detail {

template <class Map, class Adjoint, class... Attributes> struct LinearMap {
  const char* called;
  Map map;
  Adjoint adjoint;
  std::tuple<Attributes...> attributes;
  struct Saved {
    Shape from;
  };
  const char* label() const { return called; }
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.from = x.shape();
    return std::apply([&](const Attributes&... each) { return map(x, each...); }, attributes);
  }
  Grads<1> backward(const Saved& saved, const Tensor& dy, Needs<1>) const {
    return {std::apply([&](const Attributes&... each) { return adjoint(dy, saved.from, each...); }, attributes)};
  }
};

}  // namespace detail

// An op without a struct, where y is linear in x alone: y = map(x, attributes...), and dx = adjoint(dy, shape of x,
// attributes...), made of differentiable functions.
template <class Map, class Adjoint, class... Attributes>
[[nodiscard]] Tensor linear_map(
    const char* name, const Site& site, const Tensor& x, Map map, Adjoint adjoint, const Attributes&... attributes) {
  return apply(detail::LinearMap<Map, Adjoint, Attributes...>{name, map, adjoint, {attributes...}}, site, x);
}

template <class Op, class... In>
std::vector<Tensor> detail::OpNode<Op, In...>::again(const std::vector<Tensor>& inputs) const {
  Results y = [&]<std::size_t... K>(std::index_sequence<K...>) { return apply(Op(op), site, inputs[K]...); }(
                  std::make_index_sequence<count>());
  const auto results = each_of(y);
  return {results.begin(), results.end()};
}

}  // namespace whence
