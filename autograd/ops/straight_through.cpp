// The straight-through estimator.  (Bengio et al. 2013)    y = value,    dx = dy,  dvalue = 0
// Hard attention uses it: the forward pass makes a choice, and the gradient is that of the soft weights.
#include "autograd/op.h"
#include "autograd/ops.h"
#include "tensor/launch.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// The tangent of the result is that of x.
struct Join {
  const Dual *value, *x;
  Dual* y;
  WHENCE_HD void operator()(index_t i) const { y[i] = Dual(value[i].value, x[i].tangent); }
};

struct StraightThrough {
  static constexpr const char* name = "straight_through";
  struct Saved {};

  Tensor forward(Saved&, const Tensor& value, const Tensor& x) const {
    raw::require_floating(name, "value", value);
    raw::require_alike(name, "value", value, "x", x);
    raw::require_shape(name, "x", x, value.shape());
    const Tensor shown = raw::contiguous(value);
    if (value.dtype() != DType::dual) return shown;
    const Tensor from = raw::contiguous(x), y = Tensor::empty(value.shape(), DType::dual, value.device());
    launch(name, value.device(), y.numel(), Join{shown.data<Dual>(), from.data<Dual>(), y.data<Dual>()});
    return y;
  }
  Grads<2> backward(const Saved&, const Tensor& dy, Needs<2>) const { return {Tensor(), dy}; }
};

}  // namespace

Tensor straight_through(const Tensor& value, const Tensor& x, Site site) {
  const CallSite place(site);
  // Detached, so that nothing behind `value` is visited.
  return apply(StraightThrough{}, site, value.detach(), x);
}

}  // namespace whence
