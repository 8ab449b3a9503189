// linear_map(): an op without a struct, where y is linear in x alone.
#pragma once

#include <tuple>

#include "autograd/op.h"

namespace whence {
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

// An op without a struct, for y linear in x alone: y = map(x, attributes...) and dx = adjoint(dy, shape of x,
// attributes...), made of differentiable functions.
template <class Map, class Adjoint, class... Attributes>
[[nodiscard]] Tensor linear_map(
    const char* name, const Site& site, const Tensor& x, Map map, Adjoint adjoint, const Attributes&... attributes) {
  return apply(detail::LinearMap<Map, Adjoint, Attributes...>{name, map, adjoint, {attributes...}}, site, x);
}

}  // namespace whence
