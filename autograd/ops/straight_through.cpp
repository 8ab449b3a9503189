// The straight-through estimator.  (Bengio et al. 2013)    y = value,    dx = dy,  dvalue = 0
// Hard attention uses it: the forward pass makes a choice, and the gradient is that of the soft weights.
#include "autograd/check/checked.h"
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

// The value is x itself here, so that differences agree. tests/autograd/ops.cpp covers a value other than x.
Tensor of_itself(const Tensor& x, Site site) { return straight_through(x.detach(), x, site); }
std::vector<BadInput> straight_through_refusals() {
  return {refusal("straight_through: x is [3]; [2] required", straight_through, draw::zeros(2), draw::zeros(3)),
      refusal("straight_through: value is f32, x is f64; equal dtypes required; convert with cast", straight_through,
          draw::zeros(2), Tensor::zeros({2}, DType::f64))};
}

const CheckedEntry checked({StraightThrough::name, false,
    drawn<>(of_itself, {{"of itself", {3, 5}, {}}, {"0-d", {}, {}}, {"nothing", {0, 2}, {}}}),
    straight_through_refusals});

}  // namespace

Tensor straight_through(const Tensor& value, const Tensor& x, Site site) {
  const CallSite place(site);
  // Detached, so that nothing behind `value` is visited.
  return apply(StraightThrough{}, site, value.detach(), x);
}

}  // namespace whence
