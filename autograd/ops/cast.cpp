// Another dtype: y = x rounded once    dx = dy cast back
#include "autograd/check/checked.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct Cast {
  static constexpr const char* name = "cast";
  DType to;
  struct Saved {
    DType from;
  };
  // A dual stays one: gradient checks look at the formula, not at the rounding.
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.from = x.dtype();
    return x.dtype() == DType::dual && is_floating(to) ? x.detach() : raw::cast(x, to);
  }
  Grads<1> backward(const Saved& saved, const Tensor& dy, Needs<1>) const { return {cast(dy, saved.from)}; }
  static Samples<Cast> samples() {
    return {{"to f64", {DType::f64}, {draw::normal({3, 4})}}, {"0-d to f64", {DType::f64}, {draw::normal({})}}};
  }
};

const Checked<Cast> checked;

}  // namespace

Tensor cast(const Tensor& x, DType dtype, Site at) {
  if (x.dtype() == dtype) return x;
  return apply(Cast{dtype}, at, is_floating(dtype) ? x : x.detach());  // integers have no gradient
}

}  // namespace whence
