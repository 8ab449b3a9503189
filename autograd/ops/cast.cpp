// Conversion to another dtype: y = x rounded once    dx = dy cast back
#include "autograd/linear_map.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {

namespace detail {
Tensor converted(const Tensor& x, DType dtype, Site site);  // x also if the dtype is its own: autograd/samples/cast.cpp
}

Tensor detail::converted(const Tensor& x, DType dtype, Site site) {
  // A dual stays dual: gradient checks test the formula, not the rounding.
  const auto round = [](const Tensor& from, DType to, DType) {
    return from.dtype() == DType::dual && is_floating(to) ? from.detach() : raw::cast(from, to);
  };
  const auto back = [](const Tensor& dy, const Shape&, DType, DType from) { return cast(dy, from); };
  return linear_map("cast", site, x, round, back, dtype, x.dtype());
}

Tensor cast(const Tensor& x, DType dtype, Site site) {
  if (x.dtype() == dtype) return x;
  return detail::converted(is_floating(dtype) ? x : x.detach(), dtype, site);  // integers have no gradient
}

}  // namespace whence
